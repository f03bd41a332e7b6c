"""Spans onto tracks, so that on each track spans nest or follow each other: what trace viewers can draw.

In: starts and ends of one lane's spans, by start, longer first. Out: a track number for each.

    0-----------10
       2---5            track 0: inside
             7-----14   track 1: would stick out
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_TRACKS = 32
"""Spans that would need more share the last track: viewers then draw them as well as they can."""


def nested_tracks(spans: Iterable[tuple[int, int]]) -> list[int]:
    """For each (start, end) the first track where it lies inside what is open there, or after all of it."""
    open_ends: list[list[int]] = []
    return [_first_track(open_ends, start, end) for start, end in spans]


def _first_track(open_ends: list[list[int]], start: int, end: int) -> int:
    for number, ends in enumerate(open_ends):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1] or number == MAX_TRACKS - 1:
            ends.append(end)
            return number
    open_ends.append([end])
    return len(open_ends) - 1
