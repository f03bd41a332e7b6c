"""Runs with random faults, one after the other in one process: nothing hangs, nothing stays behind, nothing grows."""

from __future__ import annotations

import gc
import os
import random
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import labkit
from labkit.faults import WHAT, Fault
from labkit.launch import POOL
from labkit.plan import Plan
from labkit.watch import RunCancelled, RunError

SILENT = ("stop", "hang")
HANG_AFTER_S = 2.0
WARM_UP = 0.1
"""Share of the runs after which memory is first weighed: what is loaded once is loaded by then."""


@dataclass
class Figures:
    """What was counted. Times are seconds from the fault's event to the parent's answer."""

    num_runs: int = 0
    by_what: dict[str, int] = field(default_factory=dict)
    loud_s: list[float] = field(default_factory=list)
    silent_s: list[float] = field(default_factory=list)
    cancel_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    orphans: int = 0
    rss_before: int = 0
    rss_after: int = 0
    left: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def any_plan(chance: random.Random) -> Plan:
    kind = chance.choice(["dp", "zero", "tp", "pp", "both"])
    common = {"layers": 4, "width": 32, "steps": 3, "global_batch": 16, "seed": chance.randrange(100)}
    if kind == "dp":
        return Plan(dp=chance.choice([2, 4]), microbatches=chance.choice([1, 2]), **common)
    if kind == "zero":
        return Plan(dp=2, zero=chance.choice([1, 2, 3]), **common)
    if kind == "tp":
        return Plan(tp=2, **common)
    if kind == "pp":
        return Plan(pp=chance.choice([2, 4]), schedule=chance.choice(["1f1b", "gpipe", "interleaved_1f1b"]),
                    **{**common, "layers": 8})  # fmt: skip
    return Plan(pp=2, dp=2, **common)


def any_fault(chance: random.Random, plan: Plan) -> Fault:
    where = chance.choice(["forward", "backward", "sync"])
    step, rank = chance.randrange(plan.steps), chance.randrange(plan.num_ranks)
    return Fault(rank, step, chance.choice(list(WHAT)), where, seconds=0.01)


def soak(num_runs: int, seed: int) -> Figures:
    """Run so many random plans with random faults; every tenth is cancelled at a random moment instead."""
    chance, figures, began = random.Random(seed), Figures(num_runs), time.monotonic()
    before = None
    for number in range(num_runs):
        if number == int(WARM_UP * num_runs):
            labkit.close()
            gc.collect()
            before, figures.rss_before = _held(), psutil.Process().memory_info().rss
        plan = any_plan(chance)
        if number % 10 == 9:
            _cancelled(plan, chance.uniform(0.0, 0.6), figures)
        else:
            _faulted(plan, any_fault(chance, plan), figures)
    labkit.close()
    gc.collect()
    after = _held()
    figures.left = {name: after[name] - before[name] for name in after}
    figures.rss_after = psutil.Process().memory_info().rss
    figures.seconds = time.monotonic() - began
    return figures


def _faulted(plan: Plan, fault: Fault, figures: Figures) -> None:
    figures.by_what[fault.what] = figures.by_what.get(fault.what, 0) + 1
    pids = _pids_while(lambda: _run(plan, fault, figures))
    if fault.what != "slow":
        figures.orphans += sum(map(psutil.pid_exists, pids))


def _run(plan: Plan, fault: Fault, figures: Figures) -> None:
    try:
        labkit.run(plan, fault=fault, hang_after_s=HANG_AFTER_S)
    except RunError as error:
        hidden = fault.where == "sync" and fault.what == "hang"  # all ranks are in a sync then
        if error.rank not in ((fault.rank, None) if hidden else (fault.rank,)) or not error.ranks:
            figures.wrong.append(f"{plan}: {fault}: blamed rank {error.rank}: {str(error)[:200]}")
            return
        (figures.silent_s if fault.what in SILENT else figures.loud_s).append(error.ranks[fault.rank].for_s)
    else:
        if fault.what != "slow":
            figures.wrong.append(f"{plan}: {fault}: no error")


def _cancelled(plan: Plan, after_s: float, figures: Figures) -> None:
    figures.by_what["cancel"] = figures.by_what.get("cancel", 0) + 1
    cancelled, at = threading.Event(), []

    def cancel() -> None:
        at.append(time.monotonic())
        cancelled.set()

    timer = threading.Timer(after_s, cancel)
    timer.start()
    try:
        labkit.run(Plan.from_dict(plan.to_dict() | {"steps": 10_000}), cancelled=cancelled)
        figures.wrong.append(f"{plan}: was not cancelled")
    except RunCancelled:
        figures.cancel_s.append(time.monotonic() - at[0])
    timer.join()


def _pids_while(work) -> set[int]:
    """The ranks' processes seen while `work` ran."""
    seen, over = set(), threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            seen.update(rank.process._popen.pid for rank in list(POOL._ranks) if rank.process._popen is not None)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()
    return seen


def _held() -> dict[str, int]:
    """What this process and its children hold of the machine."""
    here = psutil.Process()
    family = [here, *here.children(recursive=True)]
    ports = sum(one.status == psutil.CONN_LISTEN for process in family for one in process.net_connections())
    return {
        "processes": len(family),
        "listening ports": ports,
        "descriptors": here.num_fds(),
        "threads": here.num_threads(),
        "shared memory and semaphores": len(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else 0,
        "temporary files": sum(1 for _ in Path(tempfile.gettempdir()).rglob("*")),
    }
