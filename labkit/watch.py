"""One run as its parent sees it: messages, progress, and what to say when a rank dies, raises or hangs.

In: ranks at work. Out: `Results`, or a `RunError` that names the rank where it began, its last event and its output.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from labkit.board import Board
from labkit.event import KINDS, Kind
from labkit.faults import LOST, LastSeen
from labkit.job import Outcome
from labkit.part import Part, decode_part
from labkit.plan import Plan
from labkit.seats import Limits

HANG_AFTER_S = 8.0
"""No event on any rank for so long (on top of the longest set duration) is a hang."""

_HANG_AFTER_UNRECORDED_S = 60.0  # with nothing recorded only whole steps show progress
_GRACE_S = 0.3  # after a fault, for the other ranks to say what they saw
_TICK_S = 0.05
_WEIGH_EVERY_S = 1.0
NO_LIMITS = Limits()
_LOG_BYTES, _LOG_TAIL, _STACK_LINES = 32_000, 2000, 15
_STACK = "(most recent call first):"  # how faulthandler begins a dump


@dataclass(frozen=True)
class Progress:
    """How far a run is. `steps_done` is per rank; `seconds_left` a guess from them, None before the first step.

    While a run waits for its turn on a shared machine, `place` is its place in line, and no rank has begun.
    """

    steps_done: tuple[int, ...]
    steps: int
    seconds: float
    seconds_left: float | None
    place: int = 0

    def tell(self, progress: Callable[..., None]) -> None:
        """Pass it on to a form, which knows no such class: steps done, steps, place in line, seconds of waiting."""
        progress(self.steps_done, self.steps, self.place, self.seconds_left if self.place else None)


@dataclass
class Results:
    """What the ranks of one run delivered. After a fault, as far as they came."""

    outcomes: list[Outcome | None]
    parts: list[Part] = field(default_factory=list)


class RunError(RuntimeError):
    """A run failed. `rank` is where it began, `log` that rank's last output, `results` what was recorded before.

    `ranks` says what every rank was at when the run was stopped; empty where none had begun.
    """

    def __init__(
        self, message: str, *, rank: int | None, log: str, results: Results, ranks: tuple[LastSeen, ...] = ()
    ) -> None:
        super().__init__(message)
        self.rank, self.log, self.results, self.ranks = rank, log, results, ranks


class RunCancelled(RunError):
    """A run was cancelled; what was recorded before is in `results`."""


@dataclass
class Rank:
    """A process of the pool and the parent's ends of what connects them."""

    process: BaseProcess
    pipe: Connection
    lifeline: Connection
    log: Any  # an unnamed temporary file


@dataclass(frozen=True)
class _Fault:
    """What a rank did: "died: killed by SIGKILL", or "raised ..." with its traceback; and when the parent heard."""

    what: str
    traceback: str = ""
    heard: float = field(default_factory=time.monotonic)


class Watch:
    """The parent's view of one run: collects messages, notices death, hang and cancel."""

    def __init__(
        self,
        ranks: list[Rank],
        board: Board,
        plan: Plan,
        on_progress: Callable[[Progress], None] | None,
        on_part: Callable[[Part], None] | None,
        cancelled: threading.Event | None,
        hang_after_s: float,
        allowed: Limits = NO_LIMITS,
    ) -> None:
        self._allowed, self._weighed = allowed, 0.0
        self._ranks, self._board, self._plan = ranks, board, plan
        self._on_progress, self._on_part, self._cancelled = on_progress, on_part, cancelled
        self._started = self._moved = time.monotonic()
        self._hang_after_s = hang_after_s if plan.record else max(hang_after_s, _HANG_AFTER_UNRECORDED_S)
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
            self._check_limits()
            if self._cancelled is not None and self._cancelled.is_set():
                raise RunCancelled("the run was cancelled", **self._at(None))
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
                self._keep(decode_part(encoded))
            self._tell()
        elif word == "part":
            self._results.parts.append(decode_part(payload))  # of a step that did not end
        elif word == "done":
            self._results.outcomes[number] = payload
        else:
            self._fail(number, _Fault(f"raised {payload[0]}", payload[1]))
        return word in ("layers", "step", "part")

    def _keep(self, part: Part) -> None:
        self._results.parts.append(part)
        if self._on_part is not None:
            self._on_part(part)

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

    def _check_limits(self) -> None:
        """Stop a run that takes more than one run may have on a shared machine."""
        now, most = time.monotonic(), self._allowed
        if most.run_s is not None and now - self._started > most.run_s:
            raise self._too_much(f"it took longer than the {most.run_s:g} s that one run may take", "fewer steps")
        if most.memory_bytes is not None and now - self._weighed > _WEIGH_EVERY_S:
            self._weighed = now
            held = sum(map(_private_bytes, self._ranks))
            if held > most.memory_bytes:
                held_mb, most_mb = held / 1e6, most.memory_bytes / 1e6
                what = f"its ranks hold {held_mb:,.0f} MB, more than the {most_mb:,.0f} MB that one run may hold"
                raise self._too_much(what, "fewer ranks or a smaller model")

    def _too_much(self, what: str, way_out: str) -> RunError:
        message = f"the run was stopped: {what} on this machine. Choose {way_out}"
        return RunError(message, **self._at(None))

    # -- what happened, in words

    def _blame(self) -> RunError:
        """The rank where it began: one that died, else one whose error is its own and not a lost connection."""
        began = [n for n, fault in self._faults.items() if not fault.traceback]
        began = began or [n for n, fault in self._faults.items() if not any(words in fault.what for words in LOST)]
        number = (began or list(self._faults))[0]
        fault = self._faults[number]
        others = ", ".join(str(n) for n in range(len(self._ranks)) if n != number)
        message = f"rank {number} {fault.what}\nIts last event: {self._activity(number)}."
        message += f"\nThe other ranks ({others}) wait for it and were stopped." if others else ""
        message += f"\n{fault.traceback.strip()}" if fault.traceback else ""
        return RunError(message + log_tail(self._ranks[number]), **self._at(number))

    def _hung(self) -> RunError:
        silent = [n for n in range(len(self._ranks)) if self._results.outcomes[n] is None]
        stuck = [n for n in silent if _process_state(self._ranks[n]) == psutil.STATUS_STOPPED]
        stuck = stuck or [n for n in silent if self._board.activity(n).kind != KINDS.index(Kind.SYNC)]
        stuck = stuck or (silent if len(silent) == 1 else [])
        for number in silent:
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(self._ranks[number].process.pid, signal.SIGUSR1)  # each then logs the line it is at
        time.sleep(0.2)
        lines = [
            f"  rank {n} ({_process_state(rank)}): {self._activity(n)}{_innermost(rank)}"
            for n, rank in enumerate(self._ranks)
        ]
        number = stuck[0] if stuck else None
        who = f"rank {number} hangs" if stuck else "a rank hangs, in a sync as all others are"
        others = ", and the others wait for it" if 0 < len(stuck) < len(silent) else ""
        message = (
            f"{who}: no rank had an event for {self._hang_after_s:.0f} s{others}; all were stopped. "
            f"If a layer may take so long, allow it: hang_after_s=, or --hang-after\n" + "\n".join(lines)
        )
        return RunError(message + (log_tail(self._ranks[number]) if stuck else ""), **self._at(number))

    def _activity(self, number: int) -> str:
        doing = self._board.activity(number)
        if not doing.count:
            return "none yet"
        words = [f"{KINDS[doing.kind]} {self._op(number, doing.op)}".strip()]
        words += [f"of layer {self._layers[doing.layer]}"] if 0 <= doing.layer < len(self._layers) else []
        words += [f"microbatch {doing.microbatch}"] * (doing.microbatch >= 0)
        words += [f"in step {doing.step}"] if doing.step >= 0 else ["during set-up"]
        return ", ".join(words)

    def _op(self, number: int, code: int) -> str:
        """The operation that a rank calls by this code, as far as its parts have told."""
        parts = [part for part in self._results.parts if part.rank == number]
        ops = parts[-1].names.ops if parts else []
        return ops[code] if 0 <= code < len(ops) else ""

    def _at(self, number: int | None) -> dict[str, Any]:
        log = read_log(self._ranks[number]) if number is not None else ""
        ranks = tuple(map(self._last_seen, range(len(self._ranks))))
        return {"rank": number, "log": log, "results": self._results, "ranks": ranks}

    def _last_seen(self, number: int) -> LastSeen:
        now, doing = time.monotonic(), self._board.activity(number)
        for_s = max(0.0, now - doing.since_ns / 1e9) if doing.count else 0.0  # an emulated device may be ahead
        fault = self._faults.get(number)
        end, ended_s = (fault.what, now - fault.heard) if fault else ("", None)
        return LastSeen(number, self._activity(number), for_s, end, ended_s)


def read_log(rank: Rank) -> str:
    """The end of what a rank printed; of a stack dump its first lines, which are where the rank is."""
    size = os.fstat(rank.log.fileno()).st_size
    text = os.pread(rank.log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace").strip()
    printed, dump, stack = text.rpartition(_STACK)
    if not dump:
        return text[-_LOG_TAIL:]
    return (printed[-_LOG_TAIL:] + dump + "\n".join(stack.splitlines()[:_STACK_LINES])).strip()


def log_tail(rank: Rank) -> str:
    log = read_log(rank)
    return f"\nIts last output:\n{log}" if log else ""


def _innermost(rank: Rank) -> str:
    """The Python line that a rank said it is at, in short."""
    _, dump, stack = read_log(rank).rpartition(_STACK)
    found = re.search(r'File ".*?([^/"]+)", line (\d+) in (\S+)', stack) if dump else None
    return f", at {found[1]}:{found[2]} in {found[3]}" if found else ""


def _exit_words(code: int | None) -> str:
    if code is None:
        return "it closed its pipe"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _private_bytes(rank: Rank) -> int:
    try:
        return psutil.Process(rank.process.pid).memory_full_info().uss
    except psutil.Error:
        return 0


def _process_state(rank: Rank) -> str:
    try:
        return psutil.Process(rank.process.pid).status()
    except psutil.Error:
        return "gone"
