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
    numbered = [(i, e) for i, e in enumerate(file.events) if e.ph == "X" and e.cat not in (None, "Trace")]
    numbers, events = [i for i, _ in numbered], [event for _, event in numbered]
    starts, durations = (_numbers([getattr(event, name) for event in events]) for name in ("ts", "dur"))
    with np.errstate(invalid="ignore"):
        in_ns = np.abs(starts) > _NS_FROM
        scale = np.where(in_ns, 1, 1000)
        good = (np.abs(starts * scale) < _LATEST_NS) & (durations >= 0) & (durations * scale < _LONGEST_NS)
    start_ns = _exact_ns([event.ts for event in events], np.where(good, starts, 0), in_ns)
    duration_ns = _exact_ns([event.dur for event in events], np.where(good, durations, 0), in_ns)
    table = _table(numbers, events, start_ns, start_ns + duration_ns)
    notes = [f"{file.path.name}: {int(in_ns.sum()):,} times are in ns, not us: taken as ns"] if in_ns.any() else []
    if not good.all():
        first, bad = numbers[int(np.flatnonzero(~good)[0])], int((~good).sum())
        said = f"{bad:,} events without a usable start or duration left out (first: event {first:,})"
        notes.append(f"{file.path.name}: {said}")
    return table.filter(pl.Series(good, dtype=pl.Boolean)).sort("start_ns", maintain_order=True), notes


def _table(numbers: list[int], events: list[Event], start_ns: np.ndarray, end_ns: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "cat": [event.cat.lower() for event in events],
            "name": [event.name if isinstance(event.name, str) else str(event.name) for event in events],
            "pid": [str(event.pid) for event in events],
            "tid": [str(event.tid) for event in events],
            "start_ns": start_ns,
            "end_ns": end_ns,
            "correlation": [_correlation(event) for event in events],
            "event": numbers,
        },
        schema=SPANS,
    )


def _numbers(values: list) -> np.ndarray:
    """The values as floats; NaN where one is no number."""
    return np.array([_number(value) for value in values], dtype=np.float64)


def _exact_ns(values: list, times: np.ndarray, in_ns: np.ndarray) -> np.ndarray:
    """Times as whole ns. Whole ns since 1970 do not fit into a float, so those are taken from the values themselves."""
    whole = np.floor(times)
    exact = whole.astype(np.int64) * 1000 + np.rint((times - whole) * 1000).astype(np.int64)
    exact[in_ns] = np.rint(times[in_ns]).astype(np.int64)
    for i in np.flatnonzero(in_ns & (times != 0)).tolist():
        if isinstance(values[i], int):
            exact[i] = values[i]
    return exact


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
