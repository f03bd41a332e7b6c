"""A profiler file's events as one table with times in whole ns.

In: a `ProfilerFile`. Out: a polars table of its spans (`ph` X), and notes on spans that had to be left out.

Profilers write us, with a fraction since 2024; some tools rewrite them in ns. Times since 1970 tell by their size which
it is. Whole us are kept exactly; fractions are rounded to 1 ns.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from labkit.kineto.file import Event, ProfilerFile

_NS_FROM = 1e17
"""Times since 1970 are 1.7e15 in us and 1.7e18 in ns: beyond this it can only be ns."""

_LATEST_NS = float(2**62)
_LONGEST_NS = 1e9 * 3600 * 24 * 30

SPANS = {
    "cat": pl.String,
    "name": pl.String,
    "pid": pl.String,
    "tid": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "correlation": pl.Int64,
    "event": pl.Int64,  # position in the file's events
}


def spans(file: ProfilerFile) -> tuple[pl.DataFrame, list[str]]:
    """Every complete span of the file, in order of time; columns SPANS."""
    numbered = [
        (i, event) for i, event in enumerate(file.events) if event.ph == "X" and event.cat not in (None, "Trace")
    ]
    numbers, events = [i for i, _ in numbered], [event for _, event in numbered]
    starts, start_unit = _as_ns([event.ts for event in events])
    durations, _ = _as_ns([event.dur for event in events], unit=start_unit)
    good = np.isfinite(starts[1]) & np.isfinite(durations[1]) & (np.abs(starts[1]) < _LATEST_NS)
    good &= (durations[1] >= 0) & (durations[1] < _LONGEST_NS)
    table = pl.DataFrame(
        {
            "cat": [event.cat.lower() for event in events],
            "name": [event.name if isinstance(event.name, str) else str(event.name) for event in events],
            "pid": [str(event.pid) for event in events],
            "tid": [str(event.tid) for event in events],
            "start_ns": starts[0],
            "end_ns": starts[0] + durations[0],
            "correlation": [_correlation(event) for event in events],
            "event": numbers,
        },
        schema=SPANS,
    )
    notes = [f"{file.path.name}: times are in ns, not us: taken as ns"] if start_unit == "ns" else []
    if not good.all():
        first = numbers[int(np.flatnonzero(~good)[0])]
        bad = int((~good).sum())
        notes.append(
            f"{file.path.name}: {bad:,} events without a usable start or duration left out (first: event {first:,})"
        )
    return table.filter(pl.Series(good, dtype=pl.Boolean)).sort("start_ns", maintain_order=True), notes


def _as_ns(values: list, unit: str | None = None) -> tuple[tuple[np.ndarray, np.ndarray], str]:
    """((exact ns, ns as float for checks), unit): NaN where a value is no number."""
    times = np.array([_number(value) for value in values], dtype=np.float64)
    finite = times[np.isfinite(times)]
    unit = unit or ("ns" if len(finite) and np.median(np.abs(finite)) > _NS_FROM else "us")
    scale = 1 if unit == "ns" else 1000
    approximate = times * scale
    safe = np.where(np.isfinite(approximate) & (np.abs(approximate) < _LATEST_NS), times, 0.0)
    whole = np.floor(safe)
    exact = whole.astype(np.int64) * scale + np.rint((safe - whole) * scale).astype(np.int64)
    return (exact, approximate), unit


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(value) if isinstance(value, str) else float("nan")
    except ValueError:
        return float("nan")


def _correlation(event: Event) -> int | None:
    """The number that ties a launch to its kernel."""
    value = event.args.correlation if event.args is not None else None
    return value if isinstance(value, int) and 0 <= value < 2**62 else None
