"""One run as its parent sees it: messages, progress, and whether a rank died, raised, hangs or takes too much.

In: ranks at work. Out: `Results`, or a `RunError`, whose words come from `blame`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait

from labkit import blame
from labkit.blame import End, Results, RunCancelled, RunError, Seen
from labkit.board import Board
from labkit.part import Part, decode_part
from labkit.plan import Plan
from labkit.process import Rank
from labkit.seats import Limits

HANG_AFTER_S = 8.0
"""No event on any rank for so long (on top of the longest set duration) is a hang."""

_HANG_AFTER_UNRECORDED_S = 60.0  # with nothing recorded only whole steps show progress
_GRACE_S = 0.3  # after a fault, for the other ranks to say what they saw
_LOST_GRACE_S = 1.0  # longer, where all that is known is lost connections
_TICK_S = 0.05
_WEIGH_EVERY_S = 1.0
NO_LIMITS = Limits()


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
        self._results = Results([None] * len(ranks))
        self._seen = Seen(ranks, board, self._results)
        self._on_progress, self._on_part, self._cancelled = on_progress, on_part, cancelled
        self._started = self._moved = time.monotonic()
        self._hang_after_s = hang_after_s if plan.record else max(hang_after_s, _HANG_AFTER_UNRECORDED_S)
        self._steps = [0] * len(ranks)
        self._first_fault = 0.0
        self._counts: list[int] = []

    def until_done(self) -> Results:
        pipes = {rank.pipe: number for number, rank in enumerate(self._ranks)}
        while pipes:
            for pipe in wait(list(pipes), _TICK_S):
                if not self._receive(pipes[pipe]):
                    del pipes[pipe]
            self._check_moving()
            self._check_limits()
            if self._cancelled is not None and self._cancelled.is_set():
                raise RunCancelled("the run was cancelled", **self._seen.at(None))
            if self._seen.ends and (self._has_settled() or not pipes):
                raise blame.failed(self._seen)
        return self._results

    def _has_settled(self) -> bool:
        """Whether all that belongs to the fault has been heard: a death that broke a connection may be told later."""
        grace_s = _GRACE_S if self._seen.began() else _LOST_GRACE_S
        return time.monotonic() - self._first_fault > grace_s

    def _receive(self, number: int) -> bool:
        """Take one message of a rank. False when it will send no more."""
        rank = self._ranks[number]
        try:
            word, payload = rank.pipe.recv()
        except (EOFError, OSError):
            rank.process.join(1)
            self._fail(number, End(f"died: {rank.exit_words()}"))
            return False
        self._moved = time.monotonic()
        if word == "layers":
            self._seen.layers = payload
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
            self._fail(number, End(f"raised {payload[0]}", payload[1]))
        return word in ("layers", "step", "part")

    def _keep(self, part: Part) -> None:
        self._results.parts.append(part)
        if self._on_part is not None:
            self._on_part(part)

    def _fail(self, number: int, end: End) -> None:
        self._first_fault = self._first_fault or time.monotonic()
        self._seen.ends[number] = end

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
            raise blame.hung(self._seen, self._hang_after_s)

    def _check_limits(self) -> None:
        """Stop a run that takes more than one run may have on a shared machine."""
        now, most = time.monotonic(), self._allowed
        if most.run_s is not None and now - self._started > most.run_s:
            raise self._too_much(f"it took longer than the {most.run_s:g} s that one run may take", "fewer steps")
        if most.memory_bytes is not None and now - self._weighed > _WEIGH_EVERY_S:
            self._weighed = now
            held = sum(rank.private_bytes() for rank in self._ranks)
            if held > most.memory_bytes:
                held_mb, most_mb = held / 1e6, most.memory_bytes / 1e6
                what = f"its ranks hold {held_mb:,.0f} MB, more than the {most_mb:,.0f} MB that one run may hold"
                raise self._too_much(what, "fewer ranks or a smaller model")

    def _too_much(self, what: str, way_out: str) -> RunError:
        message = f"the run was stopped: {what} on this machine. Choose {way_out}"
        return RunError(message, **self._seen.at(None))
