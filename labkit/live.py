"""A run while it goes on: its latest whole steps as a trace, now and then, for whoever draws them.

In: parts, as ranks send them after their steps. Out: calls with a `Trace` whose events are those of the final one, in
the same times. They come from a thread of their own, so that no rank waits for a picture, and are held back so that
working them out takes a tenth of a core at most.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

import polars as pl

from labkit.part import Part
from labkit.plan import Plan
from labkit.trace import SCHEMA, Meta, Trace, part_table

MAX_EVENTS = 5_000
"""Events in one picture of a run under way: the latest whole steps that fit, one at least."""

PAUSE_S = 0.25
"""Between two pictures, at least."""

_REST = 9  # so many times as long as the last picture took


class Live:
    """Tells `on_trace` of the parts it is given, inside a `with` block."""

    def __init__(self, plan: Plan, on_trace: Callable[[Trace], None], *, max_events: int = MAX_EVENTS) -> None:
        self._meta = Meta(plan.source, plan=plan.to_dict(), num_ranks=plan.num_ranks)
        self._on_trace, self._max_events = on_trace, max_events
        self._parts: deque[Part] = deque()
        self._events = pl.DataFrame(schema=SCHEMA)
        self._origin_ns: int | None = None
        self._told = -1  # the last step that was told
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def add(self, part: Part) -> None:
        """Take what a rank sent. Returns at once."""
        self._parts.append(part)

    def _tell(self) -> None:
        pause_s = PAUSE_S
        while not self._over.wait(pause_s):
            started = time.monotonic()
            trace = self.take()
            if trace is not None:
                self._on_trace(trace)
            pause_s = max(PAUSE_S, _REST * (time.monotonic() - started))

    def take(self) -> Trace | None:
        """The latest steps that all ranks have done; None if there is no new one."""
        parts = [self._parts.popleft() for _ in range(len(self._parts))]
        tables = [part_table(part, self._meta.mesh) for part in parts if part.rows]
        self._events = pl.concat([self._events, *tables])
        done = self._events.group_by("rank").agg(pl.col("step").max())["step"]
        if len(done) < self._meta.num_ranks or done.has_nulls() or done.min() <= self._told:
            return None
        self._told = done.min()
        if self._origin_ns is None:
            self._origin_ns = self._events["start_ns"].min()
        self._events = self._events.filter(pl.col("step") >= self._first_shown())
        shown = self._events.filter(pl.col("step") <= self._told)
        shown = shown.with_columns(pl.col("start_ns", "end_ns") - self._origin_ns)
        return Trace(shown.sort("start_ns", "rank", maintain_order=True), self._meta)

    def _first_shown(self) -> int:
        """The earliest of the latest steps that fit together."""
        counts = self._events.filter(pl.col("step") <= self._told).group_by("step").len().sort("step", descending=True)
        fits = counts.filter(pl.col("len").cum_sum() <= self._max_events)["step"]
        return fits.min() if len(fits) else self._told
