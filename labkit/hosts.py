"""Several hosts, one clock: each host's own clock against rank 0's, and times corrected by it.

In: what was measured by round trips when recording began and when it ended. Out: times on rank 0's clock, and how
exactly they are known. Between the two readings a clock's drift is taken as constant.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np


class ClockReading(msgspec.Struct, frozen=True):
    """One comparison of a host's monotonic clock with that of rank 0's host.

    Cristian (1989): of several round trips the shortest tells most; the offset is known to half of its duration.
    """

    t_ns: int  # when, on this host's clock
    offset_ns: int  # to add to this host's clock to get rank 0's
    uncertainty_ns: int


def read_clock(round_trips: Sequence[tuple[int, int, int]]) -> ClockReading:
    """The reading from round trips, each (asked, rank 0's clock when it answered, answer here), in ns."""
    asked, there, answered = min(round_trips, key=lambda trip: trip[2] - trip[0])
    middle = (asked + answered) // 2
    return ClockReading(middle, there - middle, (answered - asked + 1) // 2)


def corrected(t_ns: np.ndarray, readings: Sequence[ClockReading]) -> np.ndarray:
    """Times (n,) of a host's clock on rank 0's clock; without readings they stay as they are."""
    if not readings:
        return t_ns
    first, last = readings[0], readings[-1]
    if last.t_ns <= first.t_ns:
        return t_ns + first.offset_ns
    drifted = (t_ns - first.t_ns) * ((last.offset_ns - first.offset_ns) / (last.t_ns - first.t_ns))
    return t_ns + first.offset_ns + np.rint(drifted).astype(np.int64)


def drift_ppm(readings: Sequence[ClockReading]) -> float:
    """How much faster rank 0's clock runs, in parts per million; 0 while the readings cannot tell it from none."""
    first, last = readings[0], readings[-1]
    change_ns = last.offset_ns - first.offset_ns
    if last.t_ns <= first.t_ns or abs(change_ns) <= first.uncertainty_ns + last.uncertainty_ns:
        return 0.0
    return 1e6 * change_ns / (last.t_ns - first.t_ns)


def told(node: str, readings: Sequence[ClockReading]) -> str:
    """One sentence on a host's clock, for the trace's notes."""
    offset_ms, known_ms = readings[0].offset_ns / 1e6, max(reading.uncertainty_ns for reading in readings) / 1e6
    drift = drift_ppm(readings)
    drifts = f"it drifts by {drift:+.1f} ppm" if drift else "no drift was seen"
    return (
        f"the clock of host {node} was corrected by {offset_ms:+,.3f} ms, known to ± {known_ms:.3f} ms, and {drifts}: "
        f"times between hosts are no more exact than that"
    )
