"""What went wrong in a run, in words: which rank it began with, at which event, and why the others stopped.

In: what the parent knows of the ranks (`Seen`). Out: a `RunError` that names the rank where it began, its last event
and its output.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.board import Board
from labkit.event import KINDS, Kind
from labkit.faults import LOST, LastSeen
from labkit.job import Outcome
from labkit.part import Part
from labkit.process import Rank

_SYNC, _WAIT = KINDS.index(Kind.SYNC), KINDS.index(Kind.WAIT)
_ANSWER_S = 0.2  # for ranks to log the line they are at


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


@dataclass(frozen=True)
class End:
    """What a rank did: "died: killed by SIGKILL", or "raised ..." with its traceback; and when the parent heard."""

    what: str
    traceback: str = ""
    heard: float = field(default_factory=time.monotonic)

    @property
    def is_consequence(self) -> bool:
        """It lost its connection to another rank."""
        return any(words in self.what for words in LOST)


@dataclass
class Seen:
    """All that the parent knows of one run: its ranks, what they are at, what they delivered, how they ended."""

    ranks: Sequence[Rank]
    board: Board
    results: Results
    layers: tuple[str, ...] = ()
    ends: dict[int, End] = field(default_factory=dict)

    def at(self, number: int | None) -> dict[str, Any]:
        """The fields of a RunError that began at this rank; None: at no one rank."""
        log = self.ranks[number].read_log() if number is not None else ""
        return {"rank": number, "log": log, "results": self.results, "ranks": tuple(map(self._last, self._numbers()))}

    def activity(self, number: int) -> str:
        """The last event that a rank began."""
        doing = self.board.activity(number)
        if not doing.count:
            return "none yet"
        kind = _SYNC if doing.kind == _WAIT else doing.kind
        words = [f"{KINDS[kind]} {self._op(number, doing.op)}".strip(), *["waiting"] * (doing.kind == _WAIT)]
        words += [f"of layer {self.layers[doing.layer]}"] if 0 <= doing.layer < len(self.layers) else []
        words += [f"microbatch {doing.microbatch}"] * (doing.microbatch >= 0)
        words += [f"in step {doing.step}"] if doing.step >= 0 else ["during set-up"]
        return ", ".join(words)

    def began(self) -> list[int]:
        """Ranks where it began: those that died, else those whose error is their own and not a lost connection."""
        died = [number for number, end in self.ends.items() if not end.traceback]
        return died or [number for number, end in self.ends.items() if not end.is_consequence]

    def unfinished(self) -> list[int]:
        return [number for number in self._numbers() if self.results.outcomes[number] is None]

    def stuck(self) -> int | None:
        """Which unfinished rank the others wait for, if that can be told.

        One that is stopped; else one that is at no sync; else the only one that is in a sync and does not wait for it
        yet, while all others wait. (Inside `backward` torch waits out of sight: such a rank counts as in the sync.)
        """
        silent = self.unfinished()
        kinds = {number: self.board.activity(number).kind for number in silent}
        stopped = [number for number in silent if self.ranks[number].is_stopped]
        elsewhere = [number for number in silent if kinds[number] not in (_SYNC, _WAIT)]
        not_waiting = [number for number in silent if kinds[number] == _SYNC]
        only = not_waiting if len(not_waiting) == 1 else silent if len(silent) == 1 else []
        return next(iter([*stopped, *elsewhere, *only]), None)

    def _numbers(self) -> range:
        return range(len(self.ranks))

    def _op(self, number: int, code: int) -> str:
        """The operation that a rank calls by this code, as far as its parts have told."""
        parts = [part for part in self.results.parts if part.rank == number]
        ops = parts[-1].names.ops if parts else []
        return ops[code] if 0 <= code < len(ops) else ""

    def _last(self, number: int) -> LastSeen:
        now, doing = time.monotonic(), self.board.activity(number)
        for_s = max(0.0, now - doing.since_ns / 1e9) if doing.count else 0.0  # an emulated device may be ahead
        end = self.ends.get(number)
        what, ended_s = (end.what, now - end.heard) if end else ("", None)
        return LastSeen(number, self.activity(number), for_s, what, ended_s)


def failed(seen: Seen) -> RunError:
    """Names the rank where it began, and says that the others wait for it."""
    began = seen.began()
    if not began:
        return _lost_connection(seen)
    number, end = began[0], seen.ends[began[0]]
    others = ", ".join(str(other) for other in range(len(seen.ranks)) if other != number)
    message = f"rank {number} {end.what}\nIts last event: {seen.activity(number)}."
    message += f"\nThe other ranks ({others}) wait for it and were stopped." if others else ""
    message += f"\n{end.traceback.strip()}" if end.traceback else ""
    return RunError(message + seen.ranks[number].log_tail(), **seen.at(number))


def _lost_connection(seen: Seen) -> RunError:
    """Ranks lost a connection, and all are still there: then it is the connection that failed."""
    noticed = ", ".join(map(str, sorted(seen.ends)))
    lines = [
        f"  rank {number}: {seen.activity(number)}" + (f"; {end.what[:160]}" if (end := seen.ends.get(number)) else "")
        for number in range(len(seen.ranks))
    ]
    message = (
        f"a connection between ranks was lost, though no rank ended: it broke in ranks {noticed}; all were stopped"
    )
    return RunError("\n".join([message, *lines]), **seen.at(None))


def hung(seen: Seen, after_s: float) -> RunError:
    """Names the rank that the others wait for, and says of each the event and the line it is at."""
    silent, number = seen.unfinished(), seen.stuck()
    for one in silent:
        seen.ranks[one].ask_where()
    time.sleep(_ANSWER_S)
    lines = [f"  rank {n} ({rank.state()}): {seen.activity(n)}{rank.where()}" for n, rank in enumerate(seen.ranks)]
    who = f"rank {number} hangs" if number is not None else "a rank hangs, in a sync as all others are"
    others = ", and the others wait for it" if number is not None and len(silent) > 1 else ""
    message = (
        f"{who}: no rank had an event for {after_s:.0f} s{others}; all were stopped. "
        f"If a layer may take so long, allow it: hang_after_s=, or --hang-after\n" + "\n".join(lines)
    )
    return RunError(message + (seen.ranks[number].log_tail() if number is not None else ""), **seen.at(number))
