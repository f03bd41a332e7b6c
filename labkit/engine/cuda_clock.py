"""Times of work on a GPU: marks on the stream now, nanoseconds of the host's clock once the GPU has passed them.

In: calls to `mark` while work is queued. Out: the same rows with times in place of marks. Python runs ahead of a GPU,
so the host's clock says when work was *queued*; a CUDA event on the stream says when it was *done*. Marks are numbers
above any time and grow in order of their making, so rows can be compared before they are resolved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

FIRST_MARK = 1 << 62


class StreamEvent(Protocol):
    """What is used of torch.cuda.Event."""

    def record(self) -> None: ...

    def elapsed_time(self, end: StreamEvent) -> float:
        """Milliseconds from this event to `end`."""


class CudaClock:
    """Marks on the current stream, tied to the host's clock by an anchor that every `resolve` renews."""

    def __init__(
        self,
        make_event: Callable[[], StreamEvent] = lambda: torch.cuda.Event(enable_timing=True),
        synchronize: Callable[[], None] = lambda: torch.cuda.synchronize(),
        host_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._make_event, self._synchronize, self._host_ns = make_event, synchronize, host_ns
        self._events: list[StreamEvent] = []
        self._first = FIRST_MARK
        self._set_anchor()

    def mark(self) -> int:
        """A mark behind all work queued so far. Blocks nothing."""
        event = self._make_event()
        event.record()
        self._events.append(event)
        return self._first + len(self._events) - 1

    def resolve(self, times: np.ndarray) -> np.ndarray:
        """Host nanoseconds in place of marks; other numbers stay. Waits until the GPU has passed every mark."""
        self._synchronize()
        known_ns = np.array(
            [self._anchor_ns + round(self._anchor.elapsed_time(event) * 1e6) for event in self._events], dtype=np.int64
        )
        is_mark = times >= self._first
        resolved = times.copy()
        resolved[is_mark] = known_ns[times[is_mark] - self._first]
        self._first += len(self._events)
        self._events.clear()
        self._set_anchor()  # the two clocks drift: tie them together anew
        return resolved

    def _set_anchor(self) -> None:
        self._synchronize()
        self._anchor = self._make_event()
        self._anchor.record()
        self._synchronize()
        self._anchor_ns = self._host_ns()
