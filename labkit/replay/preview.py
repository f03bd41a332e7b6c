"""A schedule before it runs: its name or text and durations in, grid, length and idle time out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import quantity
from labkit.replay.planned import planned_trace
from labkit.schedule import (
    SCHEDULES,
    Durations,
    Schedule,
    ScheduleError,
    bubble_fraction,
    bubble_of_ideal,
    bubble_of_span,
    check_orders,
    default_microbatches,
    generate,
    schedule_grid,
    simulate,
)
from labkit.schedule.grid import cells
from labkit.trace import Trace

_SHOWN_COLUMNS = 32
_DEFAULT_RANKS = 4


@dataclass(frozen=True)
class Clock:
    """Durations of one stage's work on one microbatch, and of a message between ranks; in ns."""

    durations: Durations
    hop_ns: float


@dataclass(frozen=True)
class Preview:
    """A legal schedule on a clock."""

    order: Schedule
    clock: Clock
    makespan_ns: int
    bubble_fraction: float  # of total time
    bubble_of_ideal: float
    bubble_fraction_longest_stage: float  # of the longest rank's own span

    def trace(self) -> Trace:
        """The schedule as a planned trace."""
        return planned_trace(self.order, self.clock.durations, hop_ns=self.clock.hop_ns)

    def grid(self) -> list[list[str]]:
        """One row per rank, one cell per step of equal length; empty where the rank is idle."""
        rows = cells(self.order, idle="")
        length = max(map(len, rows))
        return [row + [""] * (length - len(row)) for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """What `labkit schedule --json` prints."""
        return {
            "name": self.order.name,
            "ranks": self.order.num_ranks,
            "stages": self.order.num_stages,
            "microbatches": self.order.num_microbatches,
            "grid": self.grid(),
            "makespan_ns": self.makespan_ns,
            "bubble_fraction": self.bubble_fraction,
            "bubble_of_ideal": self.bubble_of_ideal,
            "bubble_fraction_longest_stage": self.bubble_fraction_longest_stage,
        }

    def to_text(self) -> str:
        """The same for reading."""
        order = self.order
        spec = SCHEDULES.get(order.name)
        return "\n".join(
            [
                f"{order.name}: {order.num_ranks} ranks, {order.num_stages} stages, "
                f"{order.num_microbatches} microbatches",
                *([f"  {spec.summary}", f"  {spec.source}"] if spec else []),
                "",
                schedule_grid(order, num_columns=_SHOWN_COLUMNS),
                "",
                f"  {self.makespan_ns / 1e6:.3f} ms from first start to last end (planned; nothing was run)",
                f"  bubble {self.bubble_fraction:.4f} of total time, {self.bubble_of_ideal:.4f} of ideal time, "
                f"{self.bubble_fraction_longest_stage:.4f} of the longest rank's own span",
            ]
        )


def preview(order: Schedule, clock: Clock) -> Preview:
    """Check a schedule and put it on a clock. Raises ScheduleError, with the guilty row, for one that cannot run."""
    check_orders(order)
    slots = simulate(order, clock.durations, hop=clock.hop_ns)  # finds a deadlock by itself
    makespan = float(slots.ends.max() - slots.starts.min())
    return Preview(order, clock, round(makespan), bubble_fraction(slots), bubble_of_ideal(slots), bubble_of_span(slots))


def read_schedule(
    what: str, num_ranks: int | None = None, num_microbatches: int | None = None, virtual: int | None = None
) -> Schedule:
    """A published schedule by its name, or one's own from a text file.

    A shape left out: four ranks, two microbatches each, the schedule's usual number of stages per rank.
    """
    path = Path(what)
    if what not in SCHEDULES and (path.suffix or path.is_file()):
        return _from_file(path, num_ranks, num_microbatches)
    ranks = _DEFAULT_RANKS if num_ranks is None else num_ranks
    if num_microbatches is None and what in SCHEDULES and ranks > 0:
        num_microbatches = default_microbatches(what, ranks, virtual)
    return generate(what, ranks, num_microbatches, virtual)


def _from_file(path: Path, num_ranks: int | None, num_microbatches: int | None) -> Schedule:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScheduleError(f"cannot read the schedule {path}: {error}") from None
    order = Schedule.from_text(text, name=path.stem)
    for what, asked, found in (
        ("stages", num_ranks, order.num_ranks),
        ("microbatches", num_microbatches, order.num_microbatches),
    ):
        if asked is not None and asked != found:
            raise ScheduleError(f"--{what} {asked}, but {path} is for {found}: leave it out, or change the file")
    return order


def read_durations(text: str, order: Schedule) -> Clock:
    """ "F=18.5ms,B=18.1ms,W=9.3ms,comm=0.6ms" -> durations of one stage: a rank's stages share what a rank takes.

    W may be left out where no backward is split: B then is the whole backward.
    """
    given = {name: _duration_s(name, value) * 1e9 for name, value in _pairs(text).items()}
    unknown = sorted(set(given) - {"F", "B", "W", "comm"})
    missing = sorted({"F", "B"} - set(given))
    splits = any(action.kind in ("I", "W") for actions in order.orders for action in actions)
    if unknown or missing or (splits and "W" not in given):
        what = f"{unknown[0]} is unknown" if unknown else f"{(missing or ['W'])[0]} is missing"
        raise ScheduleError(
            f"durations {text!r}: {what}; give F, B, W and comm, e.g. F=18.5ms,B=18.1ms,W=9.3ms,comm=0.6ms"
        )
    for name, value in given.items():
        if value < 0 or (value == 0 and name != "comm"):
            raise ScheduleError(f"duration {name}={value / 1e6:g}ms: give a time above 0{' (or 0)' * (name == 'comm')}")
    share = order.num_ranks / order.num_stages
    parts = {"forward": given["F"], "backward_input": given["B"], "backward_weight": given.get("W", 0.0)}
    return Clock(Durations(**{name: value * share for name, value in parts.items()}), given.get("comm", 0.0))


def _pairs(text: str) -> dict[str, str]:
    """Names and times of "F=1ms,B=2ms". A name given twice is refused: the last one winning would go unseen."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    names = [name.strip() for name, _, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ScheduleError(f"durations {text!r}: {twice} is given twice; leave one out")
    return {name: value.strip() for name, (_, _, value) in zip(names, pairs, strict=True)}


def _duration_s(name: str, value: str) -> float:
    seconds = quantity.seconds(value)
    if not value[-1:].isalpha() and seconds:
        raise ScheduleError(f"duration {name}={value}: give its unit, e.g. {name}={value}ms")
    return seconds
