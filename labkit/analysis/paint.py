"""Give every moment of some time to one owner: rows are painted one over the other, and what shows is read off.

In: a set of time and rows with start and end, those that win last. Out: pieces, each with the row that shows, or none.

    area    0-----------10        rows   a: 1----6   b: 4--------12
    pieces  0-1 nobody, 1-4 a, 4-10 b
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.analysis.intervals import Intervals

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Pieces:
    """Disjoint pieces in order of time; `owner` is a row's number or NOBODY."""

    starts: np.ndarray
    ends: np.ndarray
    owner: np.ndarray


def paint(area: Intervals, starts: np.ndarray, ends: np.ndarray, *, cuts: np.ndarray) -> Pieces:
    """The pieces of `area`, cut at the borders of rows that show and at `cuts`."""
    bounds = np.unique(np.concatenate([area.starts, area.ends, cuts, starts, ends]).astype(np.int64))
    owner = np.full(len(bounds), NOBODY, np.int64)
    firsts, lasts = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
    for row, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
        owner[first:last] = row
    block = np.searchsorted(area.starts, bounds, side="right") - 1
    inside = np.flatnonzero((block >= 0) & (bounds < area.ends[block])) if len(area) else np.empty(0, np.int64)
    part = np.searchsorted(np.sort(cuts), bounds, side="right")
    first, last = _runs(inside, owner, block, part)
    return Pieces(bounds[first], bounds[last + 1] if len(last) else bounds[:0], owner[first])


def _runs(inside: np.ndarray, *labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last element of each run of neighbouring pieces with equal labels."""
    if not len(inside):
        return inside, inside
    changes = np.diff(inside) > 1
    for label in labels:
        changes |= np.diff(label[inside]) != 0
    return inside[np.r_[True, changes]], inside[np.r_[changes, True]]
