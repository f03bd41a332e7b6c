"""Sets of time: sorted, disjoint intervals in ns, with union, overlap and difference. Pure arithmetic.

In: starts and ends of anything. Out: `Intervals`. All breakdowns are made of these: time of a kind is the length of a
union, so work that runs side by side counts once.

    compute  0---4      8--10        of(...) merges what touches or overlaps
    sync        3-----7
    compute & sync      3-4          1 ns both
    sync - compute      4-7          3 ns exposed
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

_FIRST, _SECOND = 1, 2
"""Weights of two sets in a sweep: their sum at a point says in which of them it lies."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Disjoint intervals in ascending order; none is empty and none touches the next."""

    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, starts: np.ndarray, ends: np.ndarray) -> Intervals:
        """The union of any intervals; those that end before or where they start hold no time and are left out."""
        starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        kept = ends > starts
        starts, ends = starts[kept], ends[kept]
        if not len(starts):
            return cls(starts, ends)
        order = np.argsort(starts, kind="stable")
        starts, reached = starts[order], np.maximum.accumulate(ends[order])
        begins = np.flatnonzero(np.r_[True, starts[1:] > reached[:-1]])
        return cls(starts[begins], reached[np.r_[begins[1:] - 1, len(starts) - 1]])

    @classmethod
    def of_rows(cls, rows: pl.DataFrame) -> Intervals:
        """The union of the rows' times (columns start_ns, end_ns)."""
        return cls.of(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())

    @property
    def total_ns(self) -> int:
        return int((self.ends - self.starts).sum())

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.of(np.r_[self.starts, other.starts], np.r_[self.ends, other.ends])

    def __and__(self, other: Intervals) -> Intervals:
        return self._sweep(other, _FIRST + _SECOND)

    def __sub__(self, other: Intervals) -> Intervals:
        return self._sweep(other, _FIRST)

    def __len__(self) -> int:
        return len(self.starts)

    def _sweep(self, other: Intervals, wanted: int) -> Intervals:
        """Where the sum of the weights of the sets that cover a point is `wanted`."""
        times = np.r_[self.starts, self.ends, other.starts, other.ends]
        sizes = (len(self), len(self), len(other), len(other))
        order = np.argsort(times, kind="stable")
        level = np.cumsum(np.repeat((_FIRST, -_FIRST, _SECOND, -_SECOND), sizes)[order])
        times = times[order]
        inside = np.flatnonzero(level[:-1] == wanted) if len(times) else np.empty(0, np.int64)
        return Intervals.of(times[inside], times[inside + 1]) if len(inside) else Intervals.of([], [])
