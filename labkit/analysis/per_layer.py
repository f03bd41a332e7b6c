"""How the number of syncs grows with the layers of a model.

In: Traces of the same method on models of different depth. Out: the points, and the straight line through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.analysis.operations import operation_totals
from labkit.trace import Trace


@dataclass(frozen=True)
class PerLayer:
    """Points (layers, operations of one step), and the line through the first and the last of them."""

    points: tuple[tuple[int, int], ...]
    slope: float
    offset: float

    @property
    def is_straight(self) -> bool:
        """Whether every point lies on the line."""
        return all(abs(self.slope * layers + self.offset - count) < 0.5 for layers, count in self.points)

    def __str__(self) -> str:
        """ "2 per layer - 2", "1 per step"."""
        if not self.is_straight:
            return "no straight line"
        if not self.slope:
            return f"{self.offset:g} per step"
        offset = f" {'−' if self.offset < 0 else '+'} {abs(self.offset):g}" if self.offset else ""
        return f"{self.slope:g} per layer{offset}"


def syncs_by_layers(traces: Sequence[Trace]) -> PerLayer:
    """Operations of one step against the plans' layers, over all axes. Raises ValueError where no plan tells layers.

    Runs of 2, 4 and 8 layers with 1, 3 and 7 operations: slope 1, offset -1. A single depth: slope 0.
    """
    points = {}
    for trace in traces:
        layers = (trace.meta.plan or {}).get("layers")
        if layers is None:
            raise ValueError(f"{trace!r} does not tell its plan, so not its layers: give traces of `labkit.run`")
        points[layers] = sum(operation_totals(trace).values())
    if not points:
        raise ValueError("no traces: give at least one")
    (first, low), (last, high) = min(points.items()), max(points.items())
    slope = (high - low) / (last - first) if last > first else 0.0
    return PerLayer(tuple(sorted(points.items())), slope, low - slope * first)
