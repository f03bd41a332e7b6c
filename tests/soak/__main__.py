"""`make soak`: random faults, then a class of visitors; RELIABILITY.md says what was counted.

`python tests/soak --runs 1000 --visitors 20`
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import tempfile
from pathlib import Path

import random_faults
import visitors
from random_faults import HANG_AFTER_S, Figures

PAGE = Path(__file__).parents[2] / "RELIABILITY.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--seats", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as private:  # what the runs leave in it, only they can have left
        os.environ["TMPDIR"], tempfile.tempdir = private, None
        figures = random_faults.soak(given.runs, given.seed)
    came = visitors.come(given.visitors, given.seats)
    PAGE.write_text(page(figures, given.seed) + class_part(came), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


def page(figures: Figures, seed: int) -> str:
    """RELIABILITY.md."""
    cores, today = os.cpu_count(), datetime.date.today().isoformat()
    grown = 100 * (figures.rss_after / figures.rss_before - 1)
    rows = {
        "runs": f"{figures.num_runs}, one after the other in one process, in {figures.seconds:.0f} s",
        "what happened": ", ".join(f"{what} {count}" for what, count in sorted(figures.by_what.items())),
        "runs that ended": f"{sum(figures.by_what.values())}",
        "a fault with a sign (raise, exit, kill, memory): seconds until the error": _spread(figures.loud_s),
        f"a fault without (stop, hang), with a timeout of {HANG_AFTER_S:g} s": _spread(figures.silent_s),
        "cancel at a random moment: seconds until the prompt is back": _spread(figures.cancel_s),
        "errors that named another rank than the faulty one": f"{len(figures.wrong)}",
        "rank processes still there after the error": f"{figures.orphans}",
        **{f"{name} left at the end": f"{count}" for name, count in figures.left.items()},
        "memory of the parent, after a tenth of the runs and at the end":
            f"{figures.rss_before / 1e6:.1f} MB, {figures.rss_after / 1e6:.1f} MB ({grown:+.1f} %)",
    }  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    wrong = "\n".join(f"- {one.splitlines()[0]}" for one in figures.wrong)
    return TEXT.format(
        today=today, cores=cores, system=platform.system(), python=platform.python_version(), table=table,
        seed=seed, runs=figures.num_runs, wrong=f"{MISTAKEN}\n{wrong}\n" if wrong else "",
    )  # fmt: skip


def class_part(came: visitors.Figures) -> str:
    """The part of RELIABILITY.md about visitors."""
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
    return CLASS.format(table="\n".join(f"| {name} | {value} |" for name, value in rows.items()))


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none happened"
    return f"{sorted(seconds)[len(seconds) // 2]:.2f} (median), {max(seconds):.2f} (most), {len(seconds)} times"


TEXT = """# Reliability

Written by `make soak` on {today}, {system} with {cores} cores, Python {python}. The machine may have had other work.

Each run has a random plan (data, tensor and pipeline parallel, ZeRO) and a random fault from `labkit.faults`: a random
rank does it to itself, really, at the first forward, backward or sync of a random step. Every tenth run is cancelled
at a random moment instead. The time of a fault is that of the event in which it struck, so a time here is from the
fault to the error. What is left is counted in the process and all its children, after `labkit.close()`.

`python tests/soak --runs {runs} --seed {seed}` (`make soak` takes 1000 runs and 20 visitors; fewer are a reduced soak)

| | |
|---|---|
{table}
{wrong}
What was not counted here is held by tests: the kernel killed or interrupted (`tests/engine/test_faults.py`), waiting in
line and limits (`tests/test_seats.py`, `tests/engine/test_shared_machine.py`), any trace and any mutated file
(`tests/test_any_trace.py`, `tests/test_mutated_files.py`; more examples with `LABKIT_EXAMPLES=100`).
"""


MISTAKEN = """
Errors that named another rank. The last event that a rank began is all that is known of it from outside, so in a
pipeline a rank that waits for a message after its forward looks like one that hangs in it:
"""

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
