"""A plan that cannot run -> the nearest one that can.

In: the fields of a Plan, as a form or a lesson's slider gives them. Out: the same with as few and as small changes as
will do, and those changes in words.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import count
from typing import Any

from labkit import schedule
from labkit.plan import Plan, PlanError

MAX_TRIES = 12_000
MAX_CHANGES = 3


@dataclass(frozen=True)
class Nearest:
    """A plan that can run, and the fields that had to change for it: {"layers": 9}."""

    plan: Plan
    changes: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.changes.items())


def nearest_legal(values: Mapping[str, Any], keep: Set[str] = frozenset()) -> Nearest | None:
    """The legal plan nearest to `values`; None when none is found. Fields in `keep` are not touched.

    Nearest: the fewest fields changed, then the smallest steps; numbers are compared by their ratio.
    """
    base = {field: getattr(DEFAULT, field) for field in CANDIDATES} | {
        field: value for field, value in values.items() if value is not None
    }
    steps = sorted(_steps(base, keep), key=lambda step: step[0])
    for changes in _combinations(steps):
        try:
            plan = Plan.from_dict({**values, **changes})
        except (PlanError, ValueError, TypeError):
            continue
        return Nearest(plan, {name: value for name, value in changes.items() if values.get(name) != value})
    return None


CANDIDATES: dict[str, tuple[Any, ...]] = {
    "layers": tuple(range(1, 33)),
    "global_batch": (*range(1, 33), *range(36, 129, 4), *range(144, 513, 16)),
    "microbatches": tuple(range(1, 33)),
    "virtual": (1, 2, 3, 4),
    "dp": tuple(range(1, 9)),
    "tp": (1, 2, 4, 8),
    "pp": tuple(range(1, 9)),
    "zero": (0, 1, 2, 3),
    "width": (16, 32, 48, 64, 96, 128, 192, 256),
    "heads": (1, 2, 3, 4, 6, 8),
    "schedule": tuple(schedule.SCHEDULES),
    "sequence_parallel": (False,),
    "recompute": (False,),
    "offload": (False,),
    "grad_sync": ("engine",),
    "tensor": ("dtensor",),
}
"""What may be changed, and to what. What is left is the same experiment: no other task or dtype."""

DEFAULT = Plan()


def _steps(base: Mapping[str, Any], keep: Set[str]) -> Iterator[tuple[float, str, Any]]:
    """(cost, field, value) of every single change."""
    for field, values in CANDIDATES.items():
        if field not in keep:
            yield from ((_cost(base.get(field), value), field, value) for value in values if value != base.get(field))


def _cost(old: Any, new: Any) -> float:
    """How far a change is: the logarithm of a number's ratio; a switch or a word is as far as a factor of four."""
    numbers = all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in (old, new))
    return abs(math.log2(new / old)) if numbers else 2.0


def _combinations(steps: list[tuple[float, str, Any]]) -> Iterator[dict[str, Any]]:
    """Sets of changes to different fields, fewest first, then cheapest; at most MAX_TRIES of each number of changes."""
    yield {}
    for size in range(1, MAX_CHANGES + 1):
        yield from _cheapest(steps, size)


def _cheapest(steps: list[tuple[float, str, Any]], size: int) -> Iterator[dict[str, Any]]:
    """Best first over index tuples i < j < ..: raising any index never makes it cheaper, since steps are sorted."""
    if len(steps) < size:
        return
    order = count()
    start = tuple(range(size))
    heap, seen = [(sum(steps[i][0] for i in start), next(order), start)], {start}
    for _ in range(MAX_TRIES):
        if not heap:
            return
        _, _, indices = heapq.heappop(heap)
        chosen = {steps[i][1]: steps[i][2] for i in indices}
        if len(chosen) == size:
            yield chosen
        for place in range(size):
            moved = (*indices[:place], indices[place] + 1, *indices[place + 1 :])
            limit = indices[place + 1] if place + 1 < size else len(steps)
            if moved[place] < limit and moved not in seen:
                seen.add(moved)
                heapq.heappush(heap, (sum(steps[i][0] for i in moved), next(order), moved))
