"""The order of work of every rank, as data: a Schedule runs nothing and needs no process.

Comes from `generate` (a published schedule) or from text (somebody's own); goes to `check`, `simulate`, the engine and
the pictures. Only the order of computation is stored. Idle time is not part of an order: it follows from durations and
dependencies, so PyTorch's `None` cells are dropped when read. Messages are not part of it either: they follow from
which rank holds which stage.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from labkit.schedule.action import Action, Kind, Overlap, ScheduleError


@dataclass(frozen=True, repr=False)
class Schedule:
    """What each rank computes, in order.

    placement   the rank of each stage: placement[stage] -> rank
    orders      per rank, its actions in the order it runs them
    overlapped  pairs of neighbours in an order that run as one unit (DualPipeV); empty for all others
    """

    name: str
    num_microbatches: int
    placement: tuple[int, ...]
    orders: tuple[tuple[Action, ...], ...]
    overlapped: frozenset[Overlap] = frozenset()

    def __hash__(
        self,
    ) -> int:  # equal schedules are equal here too; hashing 65 000 actions takes as long as a simulation
        return hash((self.name, self.num_microbatches, self.placement))

    @property
    def num_ranks(self) -> int:
        """Pipeline ranks, often called pp or p."""
        return len(self.orders)

    @property
    def num_stages(self) -> int:
        """Stages of the model over all ranks."""
        return len(self.placement)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that live on `rank`, ascending."""
        return tuple(stage for stage, home in enumerate(self.placement) if home == rank)

    def sender_of(self, action: Action) -> Action | None:
        """The action on another rank whose message this one needs; a backward stands for itself or its input half."""
        return self._neighbour(action, -1)

    def receiver_of(self, action: Action) -> Action | None:
        """The action on another rank that needs this one's message."""
        return self._neighbour(action, 1)

    def _neighbour(self, action: Action, ahead: int) -> Action | None:
        """The same action one stage on (1) or back (-1), in its own direction, if that is on another rank."""
        stage, kind, microbatch = action
        if kind is Kind.BACKWARD_WEIGHT:
            return None
        other, placement = stage + (ahead if kind is Kind.FORWARD else -ahead), self.placement
        if not 0 <= other < len(placement) or placement[other] == placement[stage]:
            return None
        return Action(other, kind, microbatch)

    def __repr__(self) -> str:
        return (
            f"Schedule({self.name!r}, {self.num_ranks} ranks, {self.num_stages} stages, "
            f"{self.num_microbatches} microbatches)"
        )

    __str__ = __repr__

    @cached_property
    def _partner(self) -> dict[Action, Overlap]:
        return {pair.forward: pair for pair in self.overlapped}

    def cells(self, rank: int) -> Iterator[Action | Overlap]:
        """The order of `rank` with overlapped pairs as one cell each."""
        order = iter(self.orders[rank])
        for action in order:
            pair = self._partner.get(action)
            if pair is not None:
                next(order)  # the backward half, already in the pair
            yield pair or action

    def to_text(self) -> str:
        """CSV with one row per rank; PyTorch's `_load_csv(..., format="compute_only")` reads it."""
        return "".join(",".join(map(str, self.cells(rank))) + "\n" for rank in range(self.num_ranks))

    @classmethod
    def from_text(cls, text: str, *, name: str = "custom", placement: tuple[int, ...] | None = None) -> Self:
        """The schedule written as CSV, one row per rank, as `to_text` and PyTorch's `_dump_csv` write it.

        Empty cells are idle steps and are dropped. The number of microbatches, and the placement unless given, are
        read off the cells. Only the writing is judged here; call `check` for whether it can run.
        Raises ScheduleError for a cell that is no action and for a stage that is on no rank.
        """
        rows = [[_cell(cell) for cell in row if cell.strip()] for row in csv.reader(io.StringIO(text.strip()))]
        orders = tuple(flatten(row) for row in rows)
        if not any(orders):
            raise ScheduleError("The text holds no action. Write one row per rank, such as 0F0,0B0 and 1F0,1B0.")
        return cls(
            name=name,
            num_microbatches=1 + max(action.microbatch for order in orders for action in order),
            placement=_placement_in(orders) if placement is None else placement,
            orders=orders,
            overlapped=pairs_in(rows),
        )


def place(num_ranks: int, virtual: int, style: Literal["loop", "v"]) -> tuple[int, ...]:
    """The rank of each of `num_ranks * virtual` stages.

    loop: stage s on rank s % p, so a microbatch goes round and round (interleaved schedules).
    v:    down the ranks and back up, so the first and the last stage meet on rank 0 (ZBV, DualPipeV).
    With 2 ranks and 2 stages each: loop 0 1 0 1, v 0 1 1 0.
    """
    down = list(range(num_ranks))
    up = down if style == "loop" else down[::-1]
    return tuple(rank for lap in range(virtual) for rank in (up if lap % 2 else down))


def flatten(cells: Iterable[Action | Overlap]) -> tuple[Action, ...]:
    """The cells of one rank as plain actions: of an overlapped pair, the forward and then the backward."""
    return tuple(action for cell in cells for action in (cell if isinstance(cell, Overlap) else (cell,)))


def pairs_in(rows: Iterable[Iterable[Action | Overlap]]) -> frozenset[Overlap]:
    """The overlapped pairs among the cells of all ranks."""
    return frozenset(cell for row in rows for cell in row if isinstance(cell, Overlap))


def _cell(text: str) -> Action | Overlap:
    return Overlap.parse(text) if text.strip().startswith("(") else Action.parse(text)


def _placement_in(orders: tuple[tuple[Action, ...], ...]) -> tuple[int, ...]:
    """Each stage's rank: where it first appears. A stage on two ranks is left for `check` to report."""
    homes: dict[int, int] = {}
    for rank, order in enumerate(orders):
        for action in order:
            homes.setdefault(action.stage, rank)
    missing = sorted(set(range(max(homes) + 1)) - homes.keys())
    if missing:
        raise ScheduleError(
            f"Stages up to {max(homes)} appear, but stage {missing[0]} is on no rank. "
            "Number the stages from 0 without gaps."
        )
    return tuple(homes[stage] for stage in range(len(homes)))
