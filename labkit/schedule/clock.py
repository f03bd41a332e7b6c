"""Words for a schedule in time: how long actions take in, when each runs out. Imports no numpy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from labkit.schedule.action import Action, Kind
from labkit.schedule.order import Schedule

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Durations:
    """How long one action of one stage takes, in any one unit of time. A full backward takes both halves.

    The defaults, all equal, make a backward twice a forward, as in most papers.
    """

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0

    def __post_init__(self) -> None:
        for name in ("forward", "backward_input", "backward_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)} is no duration: give a finite number, 0 or more.")

    @property
    def backward(self) -> float:
        """A full backward: both halves."""
        return self.backward_input + self.backward_weight

    def of(self, kind: Kind) -> float:
        """The duration of one action of this kind."""
        return {
            Kind.FORWARD: self.forward,
            Kind.BACKWARD: self.backward,
            Kind.BACKWARD_INPUT: self.backward_input,
            Kind.BACKWARD_WEIGHT: self.backward_weight,
        }[kind]


class Slot(NamedTuple):
    """One action in time, start and end in the unit of the durations."""

    rank: int
    action: Action
    start: float
    end: float


class Slots(Sequence[Slot]):
    """Every action of a schedule in time, rank by rank, in order of time within a rank.

    Two columns, `starts` and `ends`, one entry per action; a Slot is made when asked for. A schedule of 64 ranks has
    65 000, and whoever wants only their length or idle time needs none.
    """

    def __init__(self, schedule: Schedule, starts: "np.ndarray", ends: "np.ndarray") -> None:
        self.schedule, self.starts, self.ends = schedule, starts, ends

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Slot]:
        orders = self.schedule.orders
        ranks = chain.from_iterable([rank] * len(order) for rank, order in enumerate(orders))
        return map(Slot, ranks, chain.from_iterable(orders), self.starts.tolist(), self.ends.tolist())

    def __getitem__(self, index: int | slice) -> Slot | list[Slot]:
        return list(self)[index]

    def __repr__(self) -> str:
        return repr(list(self))
