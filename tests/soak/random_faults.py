"""Runs with random faults, one after the other in one process: nothing hangs, nothing stays behind, nothing grows.

`soak` is one process's share; `in_processes` has several at it at once, since a silent fault is waited out.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
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
RUN_S = 120
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
    interrupt_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    untold: int = 0
    """Hangs in a sync of which it could not be told in which rank."""
    orphans: int = 0
    rss_before: int = 0
    rss_after: int = 0
    left: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def grown_percent(self) -> float:
        """Of the parent's memory, from the end of the warm-up on."""
        return 100 * (self.rss_after / self.rss_before - 1) if self.rss_before else 0.0

    def add(self, other: Figures) -> None:
        """Those of another process: all counts, and the memory of the one that grew more."""
        self.num_runs += other.num_runs
        self.orphans += other.orphans
        self.untold += other.untold
        for mine, its in ((self.by_what, other.by_what), (self.left, other.left)):
            mine.update({name: mine.get(name, 0) + count for name, count in its.items()})
        for name in ("loud_s", "silent_s", "cancel_s", "interrupt_s", "wrong"):
            getattr(self, name).extend(getattr(other, name))
        if other.grown_percent >= self.grown_percent or not self.rss_before:
            self.rss_before, self.rss_after = other.rss_before, other.rss_after


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


def in_processes(num_runs: int, seed: int, at_once: int = 2) -> Figures:
    """So many runs, shared out to processes; the figures of all. One that does not come back is told as wrong."""
    began, total = time.monotonic(), Figures()
    shares = [num_runs // at_once + (place < num_runs % at_once) for place in range(at_once)]
    with ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn")) as pool:
        asked = [pool.submit(_alone, share, 1000 * seed + place) for place, share in enumerate(shares) if share]
        for one in asked:
            try:
                total.add(one.result())
            except BrokenProcessPool:
                total.wrong.append(f"a run did not end within {RUN_S} s: its stack is above")
    total.seconds = time.monotonic() - began
    return total


def _alone(num_runs: int, seed: int) -> Figures:
    """What the runs leave in their own temporary folder, only they can have left."""
    with tempfile.TemporaryDirectory() as private:
        os.environ["TMPDIR"], tempfile.tempdir = private, None
        return soak(num_runs, seed)


def soak(num_runs: int, seed: int) -> Figures:
    """Run so many random plans with random faults; every tenth is cancelled or interrupted instead."""
    chance, figures, began = random.Random(seed), Figures(num_runs), time.monotonic()
    before = None
    for number in range(num_runs):
        faulthandler.dump_traceback_later(RUN_S, exit=True)  # nobody watches: a run that never ends must be seen
        if number == int(WARM_UP * num_runs):
            labkit.close()
            gc.collect()
            before, figures.rss_before = _held(), psutil.Process().memory_info().rss
        plan = any_plan(chance)
        if number % 10 == 9:
            _ended(plan, chance.uniform(0.0, 0.6), figures, "cancel" if number % 20 == 9 else "interrupt")
        else:
            _faulted(plan, any_fault(chance, plan), figures)
    faulthandler.cancel_dump_traceback_later()
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
        hidden = fault.what == "hang" and fault.where == "sync"  # where torch waits out of sight all are in the sync
        right = {None} if fault.what == "cut" else {fault.rank, None} if hidden else {fault.rank}
        figures.untold += error.rank is None and hidden
        if error.rank not in right or not error.ranks:
            figures.wrong.append(f"{plan}: {fault}: blamed rank {error.rank}: {_said(error)}")
            return
        (figures.silent_s if fault.what in SILENT else figures.loud_s).append(error.ranks[fault.rank].for_s)
    else:
        if fault.what != "slow":
            figures.wrong.append(f"{plan}: {fault}: no error")


def _said(error: RunError) -> str:
    """The first line, and what each rank was at."""
    ranks = [f"rank {one.rank}: {one.doing} for {one.for_s:.1f} s, {one.end[:80]}" for one in error.ranks]
    return "; ".join([str(error).splitlines()[0][:120], *ranks])


def _ended(plan: Plan, after_s: float, figures: Figures, how: str) -> None:
    """A long run that is cancelled, or interrupted by SIGINT, after so many seconds."""
    figures.by_what[how] = figures.by_what.get(how, 0) + 1
    cancelled, at = threading.Event(), []

    def end() -> None:
        at.append(time.monotonic())
        cancelled.set() if how == "cancel" else os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after_s, end)
    timer.start()
    try:
        labkit.run(Plan.from_dict(plan.to_dict() | {"steps": 10_000}), cancelled=cancelled)
        figures.wrong.append(f"{plan}: did not end by {how}")
    except (RunCancelled, KeyboardInterrupt):
        (figures.cancel_s if how == "cancel" else figures.interrupt_s).append(time.monotonic() - at[0])
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
