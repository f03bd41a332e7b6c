"""Start ranks, keep them warm, stop them.

In: a plan. Out: `Results`: every rank's outcome and all that was recorded. The ranks are forked from a server that
has torch loaded, and stay warm between runs; on any fault or cancel all are killed and the next run forks new ones.
torch is never imported here, and nothing survives this process.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from multiprocessing.reduction import DupFd
from typing import Any

from labkit.blame import Results, RunCancelled, RunError
from labkit.board import Board
from labkit.faults import Fault
from labkit.job import Job
from labkit.leftovers import own_folder
from labkit.part import Part
from labkit.plan import Plan, PlanError
from labkit.process import Rank
from labkit.seats import Place, limits, seated
from labkit.watch import HANG_AFTER_S, Progress, Watch

_START_TIMEOUT_S = 120.0
_RENEW_AFTER_RUNS = 200  # torch's caches grow by some 50 KB a run; new ranks take a tenth of a second


class Pool:
    """Warm ranks on this machine. One run at a time; `run` may be called from any thread."""

    def __init__(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["labkit.engine.preload"])
        self._ranks: list[Rank] = []
        self._board_file: Any = None
        self._board: Board | None = None
        self._store_port = 0
        self._run = self._renewed_at = 0

    # -- one run

    def run(
        self,
        plan: Plan,
        *,
        task: bytes | None = None,
        with_state: bool = False,
        fault: Fault | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_part: Callable[[Part], None] | None = None,
        cancelled: threading.Event | None = None,
        hang_after_s: float = HANG_AFTER_S,
    ) -> Results:
        """Run a plan and return what its ranks deliver. Raises RunError, RunCancelled; blocks until then."""
        check_machine(plan)
        if fault is not None:
            fault.check(plan)
        allowed = limits()
        self._wait_for_turn(cancelled)
        try:
            with seated(plan.num_ranks, allowed.seats, partial(_wait_in_line, plan, on_progress, cancelled)):
                return self._run_seated(
                    Job(self._run + 1, plan, task, with_state, fault=fault),
                    lambda ranks: Watch(
                        ranks, self._board, plan, on_progress, on_part, cancelled, hang_after_s, allowed
                    ),
                )
        except InterruptedError:
            raise _cancelled_early() from None
        finally:
            self._lock.release()
            if allowed.idle_s is not None:
                self._close_after(allowed.idle_s)

    def _run_seated(self, job: Job, watch: Callable[[list[Rank]], Watch]) -> Results:
        try:
            self._started(job.plan)
            self._run = job.run
            self._board.reset()
            ranks = self._ranks[: job.plan.num_ranks]
            for rank in ranks:
                rank.pipe.send(replace(job, store_port=self._store_port))
            return watch(ranks).until_done()
        except BaseException:  # an interrupt too must leave no rank in the middle of a run
            self._kill()
            raise

    def _close_after(self, idle_s: float) -> None:
        """Let warm ranks go unless another run comes: on a shared machine they are others' memory."""
        timer = threading.Timer(idle_s, self._close_if_idle, [self._run])
        timer.daemon = True
        timer.start()

    def _close_if_idle(self, last_run: int) -> None:
        with self._lock:
            if self._run == last_run:
                self._kill()

    def _wait_for_turn(self, cancelled: threading.Event | None) -> None:
        """Take the pool's lock; another thread's run may hold it for long."""
        while not self._lock.acquire(timeout=0.1):
            if cancelled is not None and cancelled.is_set():
                raise _cancelled_early()

    def warm_up(self, num_ranks: int = 1) -> None:
        """Have torch loaded and ranks waiting, so that the first run starts at once."""
        with self._lock:
            try:
                self._ensure(Plan(dp=num_ranks, global_batch=num_ranks, max_ranks=num_ranks))
            except BaseException:
                self._kill()
                raise

    def close(self) -> None:
        """Stop all ranks. The next run starts new ones."""
        if os.getpid() == self._pid:  # a fork of the user's program must not stop its parent's ranks
            with self._lock:
                self._kill()

    # -- ranks

    def _started(self, plan: Plan) -> None:
        """`_ensure`, with a full disk or a process too many in words."""
        try:
            self._ensure(plan)
        except OSError as error:
            where = f"their logs and what they share lie in {tempfile.gettempdir()}"
            message = f"the ranks could not start: {error.strerror or error}; {where}"
            raise RunError(message, rank=None, log="", results=Results([])) from error

    def _ensure(self, plan: Plan) -> None:
        """At least as many live ranks as the plan needs."""
        worn = self._run - self._renewed_at >= _RENEW_AFTER_RUNS
        if worn or any(not rank.process.is_alive() for rank in self._ranks):
            self._kill()
            self._renewed_at = self._run
        if len(self._ranks) >= plan.num_ranks:
            return
        capacity = max(plan.num_ranks, Plan.max_ranks)
        if self._board is None or capacity > self._board.num_ranks:
            self._kill()
            self._board_file = tempfile.TemporaryFile()  # noqa: SIM115 - shared until the pool is killed
            self._board = Board(self._board_file.fileno(), capacity)
        new = range(len(self._ranks), plan.num_ranks)
        own_folder()
        with _environment(), _without_main():
            self._ranks += [self._start(rank) for rank in new]
        self._await_ready(new)

    def _start(self, rank: int) -> Rank:
        pipe, pipe_there = self._context.Pipe()
        lifeline_there, lifeline = self._context.Pipe(duplex=False)
        log = tempfile.TemporaryFile()  # noqa: SIM115 - read after a fault
        process = self._context.Process(
            target=_live,
            args=(
                rank, self._board.num_ranks, pipe_there, lifeline_there, _Fd(log.fileno()),
                _Fd(self._board_file.fileno()),
            ),
            name=f"labkit-rank{rank}",
            daemon=True,
        )  # fmt: skip
        process.start()
        pipe_there.close()
        lifeline_there.close()
        return Rank(process, pipe, lifeline, log)

    def _await_ready(self, new: range) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        for number in new:
            rank = self._ranks[number]
            if not rank.pipe.poll(max(0.0, deadline - time.monotonic())):
                raise RunError(f"rank {number} did not start in {_START_TIMEOUT_S:g} s", **_at(number, rank))
            try:
                _, port = rank.pipe.recv()
            except (EOFError, OSError):
                raise RunError(f"rank {number} died while starting{rank.log_tail()}", **_at(number, rank)) from None
            self._store_port = port or self._store_port

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.process.kill()
        for rank in self._ranks:
            rank.process.join()
            for end in (rank.pipe, rank.lifeline, rank.log):
                end.close()
            rank.process.close()
        self._ranks = []
        if self._board is not None:
            self._board.close()
            self._board_file.close()
            self._board = None


def _wait_in_line(
    plan: Plan, on_progress: Callable[[Progress], None] | None, cancelled: threading.Event | None, place: Place
) -> bool:
    """Tell the place in line; False when the run is no longer wanted."""
    if on_progress is not None:
        on_progress(Progress((), plan.steps, 0.0, place.wait_s, place.number))
    return cancelled is None or not cancelled.is_set()


def _cancelled_early() -> RunCancelled:
    return RunCancelled("the run was cancelled before it began", rank=None, log="", results=Results([]))


def check_machine(plan: Plan) -> None:
    """Refuse a plan this machine cannot run, before a process starts."""
    if plan.backend == "nccl":
        gpus = num_gpus()
        if gpus < plan.num_ranks:
            raise PlanError(
                f"backend nccl needs a GPU per rank: the plan has {plan.num_ranks} ranks, this machine {gpus} GPUs; "
                f"use backend gloo, or fewer ranks"
            )


def num_gpus() -> int:
    """GPUs that nvidia-smi lists; 0 where there is none."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


class _Fd:
    """A file descriptor handed to the new process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _detach, (DupFd(self._fd),)


def _detach(duplicate: Any) -> int:
    return duplicate.detach()


def _live(*args: Any) -> None:
    from labkit.engine.rank import live  # only a rank loads torch

    live(*args)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """What the server must find when it starts: one thread a rank, or 4 ranks on 2 cores would fight over them."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep multiprocessing from running the user's script again in every rank: ranks need nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _at(number: int, rank: Rank) -> dict[str, Any]:
    return {"rank": number, "log": rank.read_log(), "results": Results([])}


POOL = Pool()
"""The ranks of this process. Forks nothing before it is first used."""

atexit.register(POOL.close)
