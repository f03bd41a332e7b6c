"""Start ranks, watch them, stop them.

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
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from typing import Any

import psutil

from labkit.board import Board, board_bytes
from labkit.event import KINDS, Kind
from labkit.job import Job, Outcome
from labkit.part import Part, decode_part
from labkit.plan import Plan, PlanError

HANG_AFTER_S = 8.0
"""No event on any rank for so long (on top of the longest set duration) is a hang."""

_HANG_AFTER_UNRECORDED_S = 60.0  # with nothing recorded only whole steps show progress
_START_TIMEOUT_S = 120.0
_GRACE_S = 0.3  # after a fault, for the other ranks to say what they saw
_TICK_S = 0.05
_LOG_TAIL_BYTES = 2000


@dataclass(frozen=True)
class Progress:
    """How far a run is. `steps_done` is per rank; `seconds_left` a guess from them, None before the first step."""

    steps_done: tuple[int, ...]
    steps: int
    seconds: float
    seconds_left: float | None


@dataclass
class Results:
    """What the ranks of one run delivered. After a fault, as far as they came."""

    outcomes: list[Outcome | None]
    parts: list[Part] = field(default_factory=list)


class RunError(RuntimeError):
    """A run failed. `rank` is where it began, `log` that rank's last output, `results` what was recorded before."""

    def __init__(self, message: str, *, rank: int | None, log: str, results: Results) -> None:
        super().__init__(message)
        self.rank, self.log, self.results = rank, log, results


class RunCancelled(RunError):
    """A run was cancelled; what was recorded before is in `results`."""


@dataclass
class _Rank:
    process: BaseProcess
    pipe: Connection
    lifeline: Connection
    log: Any  # an unnamed temporary file


class Pool:
    """Warm ranks on this machine. One run at a time; `run` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["labkit.engine.preload"])
        self._ranks: list[_Rank] = []
        self._board_file: Any = None
        self._board: Board | None = None
        self._store_port = 0
        self._run = 0

    # -- one run

    def run(
        self,
        plan: Plan,
        *,
        task: bytes | None = None,
        with_state: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        cancelled: threading.Event | None = None,
        hang_after_s: float = HANG_AFTER_S,
    ) -> Results:
        """Run a plan and return what its ranks deliver. Raises RunError, RunCancelled; blocks until then."""
        check_machine(plan)
        with self._lock:
            try:
                self._ensure(plan)
                self._run += 1
                job = Job(self._run, plan, task, with_state, self._store_port)
                for rank in self._ranks[: plan.num_ranks]:
                    rank.pipe.send(job)
                watch = _Watch(self._ranks[: plan.num_ranks], self._board, plan, on_progress, cancelled, hang_after_s)
                return watch.until_done()
            except BaseException:  # an interrupt too must leave no rank in the middle of a run
                self._kill()
                raise

    def warm_up(self, num_ranks: int = 1) -> None:
        """Have torch loaded and ranks waiting, so that the first run starts at once."""
        with self._lock:
            self._ensure(Plan(dp=num_ranks, global_batch=num_ranks, max_ranks=num_ranks))

    def close(self) -> None:
        """Stop all ranks. The next run starts new ones."""
        with self._lock:
            self._kill()

    # -- ranks

    def _ensure(self, plan: Plan) -> None:
        """At least as many live ranks as the plan needs."""
        if any(not rank.process.is_alive() for rank in self._ranks):
            self._kill()
        if len(self._ranks) >= plan.num_ranks:
            return
        capacity = max(plan.num_ranks, plan.max_ranks)
        if self._board is None or capacity > self._board.num_ranks:
            self._kill()
            self._board_file = tempfile.TemporaryFile()  # noqa: SIM115 - shared until the pool is killed
            self._board_file.truncate(board_bytes(capacity))
            self._board = Board(self._board_file.fileno(), capacity)
        new = range(len(self._ranks), plan.num_ranks)
        with _environment(), _without_main():
            self._ranks += [self._start(rank) for rank in new]
        self._await_ready(new)

    def _start(self, rank: int) -> _Rank:
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
        return _Rank(process, pipe, lifeline, log)

    def _await_ready(self, new: range) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        for number in new:
            rank = self._ranks[number]
            if not rank.pipe.poll(max(0.0, deadline - time.monotonic())):
                raise RunError(f"rank {number} did not start in {_START_TIMEOUT_S:g} s", **_at(number, rank))
            try:
                _, port = rank.pipe.recv()
            except (EOFError, OSError):
                raise RunError(f"rank {number} died while starting{_tail(rank)}", **_at(number, rank)) from None
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


# ---- watching


_LOST = ("Connection closed by peer", "Connection reset", "Broken pipe", "Connection refused", "Socket closed")
"""What a rank says when another one is gone: its error is a consequence."""


@dataclass(frozen=True)
class _Fault:
    """What a rank did: "died: killed by SIGKILL", or "raised ..." with its traceback."""

    what: str
    traceback: str = ""


class _Watch:
    """The parent's view of one run: collects messages, notices death, hang and cancel."""

    def __init__(
        self,
        ranks: list[_Rank],
        board: Board,
        plan: Plan,
        on_progress: Callable[[Progress], None] | None,
        cancelled: threading.Event | None,
        hang_after_s: float,
    ) -> None:
        self._ranks, self._board, self._plan = ranks, board, plan
        self._on_progress, self._cancelled = on_progress, cancelled
        self._started = self._moved = time.monotonic()
        self._hang_after_s = hang_after_s + 2 * plan.time_scale * (plan.pace.longest_s if plan.pace else 0)
        if not plan.record:
            self._hang_after_s = max(self._hang_after_s, _HANG_AFTER_UNRECORDED_S)
        self._results = Results([None] * len(ranks))
        self._steps = [0] * len(ranks)
        self._faults: dict[int, _Fault] = {}
        self._first_fault = 0.0
        self._counts: list[int] = []
        self._layers: tuple[str, ...] = ()

    def until_done(self) -> Results:
        pipes = {rank.pipe: number for number, rank in enumerate(self._ranks)}
        while pipes:
            for pipe in wait(list(pipes), _TICK_S):
                if not self._receive(pipes[pipe]):
                    del pipes[pipe]
            self._check_moving()
            if self._cancelled is not None and self._cancelled.is_set():
                raise RunCancelled("the run was cancelled", rank=None, log="", results=self._results)
            if self._faults and (time.monotonic() - self._first_fault > _GRACE_S or not pipes):
                raise self._blame()
        return self._results

    def _receive(self, number: int) -> bool:
        """Take one message of a rank. False when it will send no more."""
        rank = self._ranks[number]
        try:
            word, payload = rank.pipe.recv()
        except (EOFError, OSError):
            rank.process.join(1)
            self._fail(number, _Fault(f"died: {_exit_words(rank.process.exitcode)}"))
            return False
        self._moved = time.monotonic()
        if word == "layers":
            self._layers = payload
        elif word == "step":
            self._steps[number], encoded = payload
            if encoded:
                self._results.parts.append(decode_part(encoded))
            self._tell()
        elif word == "done":
            self._results.outcomes[number] = payload
        else:
            self._fail(number, _Fault(f"raised {payload[0]}", payload[1]))
        return word in ("layers", "step")

    def _fail(self, number: int, fault: _Fault) -> None:
        self._first_fault = self._first_fault or time.monotonic()
        self._faults[number] = fault

    def _tell(self) -> None:
        if self._on_progress is None:
            return
        seconds, done = time.monotonic() - self._started, min(self._steps)
        left = seconds / done * (self._plan.steps - done) if done else None
        self._on_progress(Progress(tuple(self._steps), self._plan.steps, seconds, left))

    def _check_moving(self) -> None:
        counts = [self._board.activity(number).count for number in range(len(self._ranks))]
        if counts != self._counts:
            self._counts, self._moved = counts, time.monotonic()
        elif time.monotonic() - self._moved > self._hang_after_s:
            raise self._hung()

    # -- what happened, in words

    def _blame(self) -> RunError:
        """The rank where it began: one that died, else one whose error is its own and not a lost connection."""
        began = [n for n, fault in self._faults.items() if not fault.traceback]
        began = began or [n for n, fault in self._faults.items() if not any(words in fault.what for words in _LOST)]
        number = (began or list(self._faults))[0]
        fault = self._faults[number]
        others = ", ".join(str(n) for n in range(len(self._ranks)) if n != number)
        message = f"rank {number} {fault.what}\nIts last event: {self._activity(number)}."
        message += f"\nThe other ranks ({others}) wait for it and were stopped." if others else ""
        message += f"\n{fault.traceback.strip()}" if fault.traceback else ""
        return RunError(message + _tail(self._ranks[number]), **self._at(number))

    def _hung(self) -> RunError:
        silent = [n for n in range(len(self._ranks)) if self._results.outcomes[n] is None]
        stuck = [n for n in silent if _process_state(self._ranks[n]) == psutil.STATUS_STOPPED]
        stuck = stuck or [n for n in silent if self._board.activity(n).kind != KINDS.index(Kind.SYNC)] or silent
        for number in silent:
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(self._ranks[number].process.pid, signal.SIGUSR1)  # each then logs the line it is at
        time.sleep(0.2)
        lines = [f"  rank {n} ({_process_state(self._ranks[n])}): {self._activity(n)}" for n in range(len(self._ranks))]
        number = stuck[0]
        message = (
            f"rank {number} hangs: no rank had an event for {self._hang_after_s:.0f} s, and the others wait for it; "
            f"all were stopped (a longer limit: hang_after_s=)\n" + "\n".join(lines)
        )
        return RunError(message + _tail(self._ranks[number]), **self._at(number))

    def _activity(self, number: int) -> str:
        doing = self._board.activity(number)
        if not doing.count:
            return "none yet"
        words = [str(KINDS[doing.kind])]
        words += [f"of layer {self._layers[doing.layer]}"] if 0 <= doing.layer < len(self._layers) else []
        words += [f"microbatch {doing.microbatch}"] * (doing.microbatch >= 0)
        words += [f"in step {doing.step}"] if doing.step >= 0 else ["during set-up"]
        return ", ".join(words)

    def _at(self, number: int) -> dict[str, Any]:
        return {"rank": number, "log": _log(self._ranks[number]), "results": self._results}


def _at(number: int, rank: _Rank) -> dict[str, Any]:
    return {"rank": number, "log": _log(rank), "results": Results([])}


def _log(rank: _Rank) -> str:
    size = os.fstat(rank.log.fileno()).st_size
    tail = os.pread(rank.log.fileno(), _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES))
    return tail.decode(errors="replace").strip()


def _tail(rank: _Rank) -> str:
    log = _log(rank)
    return f"\nIts last output:\n{log}" if log else ""


def _exit_words(code: int | None) -> str:
    if code is None:
        return "it closed its pipe"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _process_state(rank: _Rank) -> str:
    try:
        return psutil.Process(rank.process.pid).status()
    except psutil.Error:
        return "gone"


POOL = Pool()
"""The ranks of this process. Forks nothing before it is first used."""

atexit.register(POOL.close)
