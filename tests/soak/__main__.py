"""`make soak`: random faults, any plans and mutated files, a class of visitors; RELIABILITY.md says what was counted.

`python tests/soak --runs 1000 --plans 100000 --files 100000 --visitors 20`. Each part is on the page as soon as it is
done; the command fails if something that must not happen did.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from pathlib import Path

import any_input
import random_faults
import visitors
from any_input import Counts
from random_faults import HANG_AFTER_S, Figures

PAGE = Path(__file__).parents[2] / "RELIABILITY.md"
MOST_LOUD_S = 5.0
MOST_GROWN_PERCENT = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--seats", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    began, parts = time.monotonic(), [head(given)]

    def put(part: str) -> None:
        parts.append(part)
        took = f"\nThe whole took {time.monotonic() - began:.0f} s.\n"
        given.page.write_text("".join(parts) + took, encoding="utf-8")
        print(part, flush=True)

    missed = []
    if given.runs:
        figures = random_faults.in_processes(given.runs, given.seed)
        put(faults_part(figures))
        missed += missed_by_faults(figures)
    if given.plans or given.files:
        plans = any_input.in_parts(any_input.plans, given.plans, given.seed)
        files = any_input.in_parts(any_input.files, given.files, given.seed)
        put(input_part(plans, files))
        missed += plans.wrong + files.wrong
    if given.visitors:
        came = visitors.come(given.visitors, given.seats)
        put(class_part(came))
        missed += missed_by_class(came)
    if missed:
        sys.exit("\n".join(["what must not happen did:", *missed[:50]]))


# ---- the page


def head(given: argparse.Namespace) -> str:
    return HEAD.format(
        today=datetime.date.today().isoformat(), cores=os.cpu_count(), system=platform.system(),
        python=platform.python_version(),
        how=" ".join(f"--{name} {getattr(given, name)}" for name in ("runs", "plans", "files", "visitors", "seed")),
    )  # fmt: skip


def faults_part(figures: Figures) -> str:
    rows = {
        "runs": f"{figures.num_runs}, in two processes side by side, in {figures.seconds:.0f} s",
        "what happened": ", ".join(f"{what} {count}" for what, count in sorted(figures.by_what.items())),
        "runs begun, all of which ended": f"{sum(figures.by_what.values())}",
        "a fault with a sign (raise, exit, kill, memory, cut): seconds until the error": _spread(figures.loud_s),
        f"a fault without (stop, hang), with a timeout of {HANG_AFTER_S:g} s": _spread(figures.silent_s),
        "cancel at a random moment: seconds until the prompt is back": _spread(figures.cancel_s),
        "interrupt (SIGINT) at a random moment: the same": _spread(figures.interrupt_s),
        "errors that named a rank other than the faulty one": f"{len(figures.wrong)}",
        "hangs in a sync for which no rank could be named": f"{figures.untold}",
        "rank processes still there after the error": f"{figures.orphans}",
        **{f"{name} left at the end": f"{count}" for name, count in figures.left.items()},
        "memory of the parent, after a tenth of the runs and at the end":
            f"{figures.rss_before / 1e6:.1f} MB, {figures.rss_after / 1e6:.1f} MB ({figures.grown_percent:+.1f} %)",
    }  # fmt: skip
    return FAULTS.format(table=_table(rows), wrong=_listed("Errors that named another rank:", figures.wrong))


def input_part(plans: Counts, files: Counts) -> str:
    rows = {"": ("plans", "files"), "---": ("--:", "--:")} | {
        name: (of(plans), of(files))
        for name, of in {
            "how many": lambda one: f"{one.num:,}",
            "refused in words": lambda one: f"{one.refused:,}",
            "neither right nor refused": lambda one: f"{len(one.wrong)}",
            "that never ended": lambda one: f"{one.hung}",
            "the longest took": lambda one: f"{one.longest_s:.2f} s",
            f"most that a process grew within {any_input.PART:,}": lambda one: f"{one.grown_bytes / 1e6:.1f} MB",
            "all took": lambda one: f"{one.seconds:.0f} s",
        }.items()
    }
    table = "\n".join(f"| {name} | {' | '.join(values)} |" for name, values in rows.items())
    return INPUT.format(table=table, wrong=_listed("What was neither:", plans.wrong + files.wrong))


def class_part(came: visitors.Figures) -> str:
    waited = sorted(visit.waited_s for visit in came.visits)
    rows = {
        "visitors, all at once": f"{len(came.visits)}",
        "got their own run, whole, and equal to the serial one": f"{sum(visit.is_right for visit in came.visits)}",
        "saw their place in line": f"{sum(bool(visit.places) for visit in came.visits)}",
        "page ready after, slowest": f"{max(visit.page_s for visit in came.visits):.0f} s",
        "from Run to the first step: median, 95th percentile":
            f"{waited[len(waited) // 2]:.0f} s, {waited[int(0.95 * (len(waited) - 1))]:.0f} s",
        "last visitor done after": f"{max(visit.done_s for visit in came.visits):.0f} s",
        "ranks that may be at work at once": f"{came.seats}",
        "most processes; their private memory": f"{came.most_processes}; {came.most_bytes / 1e9:.1f} GB",
        "kernels and ranks gone after the last page closed":
            "no" if came.left_after_s is None else f"{came.left_after_s:.1f} s",
    }  # fmt: skip
    return CLASS.format(table=_table(rows))


# ---- what must not happen


def missed_by_faults(figures: Figures) -> list[str]:
    left = [f"{count} {name} left" for name, count in figures.left.items() if count > 0]
    late = [f"an error after {seconds:.1f} s" for seconds in figures.loud_s if seconds > MOST_LOUD_S]
    grown = figures.grown_percent
    much = [f"the parent's memory grew by {grown:.1f} %"] if grown > MOST_GROWN_PERCENT else []
    orphans = [f"{figures.orphans} ranks still there after the error"] if figures.orphans else []
    return figures.wrong + left + late + much + orphans


def missed_by_class(came: visitors.Figures) -> list[str]:
    wrong = [f"a visitor did not get its own whole run: {visit}" for visit in came.visits if not visit.is_right]
    return wrong + (["kernels or ranks left when all had gone"] if came.left_after_s is None else [])


# ---- words


def _table(rows: dict[str, str]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def _listed(title: str, lines: list[str]) -> str:
    return "\n".join(["", title, "", *(f"- {line.splitlines()[0]}" for line in lines[:20]), ""]) if lines else ""


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none happened"
    return f"{sorted(seconds)[len(seconds) // 2]:.2f} (median), {max(seconds):.2f} (most), {len(seconds)} times"


HEAD = """# Reliability

Written by `make soak` on {today}, {system} with {cores} cores, Python {python}. The machine may have had other work.

`python tests/soak {how}` (the whole of it: 1000 runs, 100000 plans, 100000 files, 20 visitors)

What is not counted here is held by tests: the kernel killed, the store dead (`tests/engine/test_faults.py`,
`test_injected_faults.py`), the user's interrupt at random moments (`test_interrupt.py`), the disk full
(`test_disk_full.py`), waiting in line and limits (`tests/test_seats.py`, `tests/engine/test_shared_machine.py`), any
trace (`tests/test_any_trace.py`), the end of `labkit lab` (`tests/test_serve.py`).
"""

FAULTS = """
## Random faults

Each run has a random plan (data, tensor and pipeline parallel, ZeRO) and a random fault from `labkit.faults`: a random
rank does it to itself, really, at the first forward, backward or sync of a random step. Every tenth run is cancelled or
interrupted at a random moment instead. The time of a fault is that of the event in which it struck, so a time here is
from the fault to the error. What is left is counted in the process and all its children, after `labkit.close()`.

| | |
|---|---|
{table}
{wrong}
When a rank hangs in a sync, the others wait in one. A rank that has not begun to wait is the one that hangs; but inside
`backward` torch waits for gradients out of sight, so there it may not be told. The error then shows each rank's line.
"""

INPUT = """
## Any plan, any file

Plans: half of any values, half nearly legal. A legal one must agree with itself (groups of the mesh, layers, samples,
order of the pipeline, bubble, memory, and its own text read back), any other must be refused in words. Files: a kind
that labkit reads, with one to three changes: bytes overwritten, cut out, repeated, put in, or the end lost. It must be
read, or refused by the error that its reader documents.

{table}
{wrong}"""

CLASS = """
## A class before one machine

Each visitor opens the explorer of `labkit lab --seats` and runs a plan of its own (data 2 x pipeline 2, a number of
steps and a seed that nobody else has), over the kernel's websocket as the page would. The machine is the same.

| | |
|---|---|
{table}
"""


if __name__ == "__main__":
    main()
