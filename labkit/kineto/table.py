"""A profiler file's events as one table with times in whole ns.

In: lists of events. Out: a polars table of the spans (`ph` X), and notes on spans that had to be left out.

Profilers write us, with a fraction since 2024; some tools rewrite them in ns. Times since 1970 tell by their size which
it is. Whole us are kept exactly; fractions are rounded to 1 ns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import polars as pl

from labkit.kineto.events import Args, Event
from labkit.kineto.words import MODULE

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
    "event": pl.Int64,  # place in the file's events
}


class Spans:
    """Collects a file's spans; `args` keeps what events say of collectives and ranks, by the event's place."""

    def __init__(self) -> None:
        self.args: dict[int, Args] = {}
        self._tables: list[pl.DataFrame] = []
        self._num_events = self._num_bad = self._num_ns = 0
        self._first_bad: int | None = None

    def add(self, events: Sequence[Event]) -> None:
        """The next events of the file."""
        first, self._num_events = self._num_events, self._num_events + len(events)
        places = [i for i, event in enumerate(events) if event.ph == "X" and event.cat not in (None, "Trace")]
        if not places:
            return
        events = [events[i] for i in places]
        places = np.array(places) + first
        args = [event.args for event in events]
        self._keep_args(args, places)
        start_ns, end_ns, good = self._times([event.ts for event in events], [event.dur for event in events], places)
        table = pl.DataFrame(
            {
                "cat": _texts([event.cat for event in events]).str.to_lowercase(),
                "name": _texts([event.name for event in events]),
                "pid": _texts([event.pid for event in events]),
                "tid": _texts([event.tid for event in events]),
                "start_ns": start_ns,
                "end_ns": end_ns,
                "correlation": _correlations(args),
                "event": places,
            },
            schema=SPANS,
        )
        self._tables.append(table.filter(pl.Series(good) & _USED))

    def table(self, name: str) -> tuple[pl.DataFrame, list[str]]:
        """Every complete span, in order of time; columns SPANS. `name`: the file's, for notes."""
        whole = pl.concat(self._tables) if self._tables else pl.DataFrame(schema=SPANS)
        self._tables.clear()
        notes = [f"{name}: {self._num_ns:,} times are in ns, not us: taken as ns"] if self._num_ns else []
        if self._num_bad:
            said = f"{self._num_bad:,} events without a usable start or duration left out"
            notes.append(f"{name}: {said} (first: event {self._first_bad:,})")
        return whole.sort("start_ns", maintain_order=True), notes

    def _times(self, ts: list, dur: list, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(start_ns, end_ns, which are usable)"""
        starts, durations = _numbers(ts), _numbers(dur)
        with np.errstate(invalid="ignore", over="ignore"):
            in_ns = np.abs(starts) > _NS_FROM
            scale = np.where(in_ns, 1, 1000)
            good = (np.abs(starts * scale) < _LATEST_NS) & (durations >= 0) & (durations * scale < _LONGEST_NS)
        start_ns = _exact_ns(ts, np.where(good, starts, 0), in_ns)
        end_ns = start_ns + _exact_ns(dur, np.where(good, durations, 0), in_ns)
        self._num_ns += int(in_ns.sum())
        bad = np.flatnonzero(~good)
        if len(bad):
            self._num_bad += len(bad)
            self._first_bad = int(places[bad[0]]) if self._first_bad is None else self._first_bad
        return start_ns, end_ns, good

    def _keep_args(self, args: list[Args | None], places: np.ndarray) -> None:
        told = [i for i, arg in enumerate(args) if arg is not None and (arg.collective, arg.rank) != (None, None)]
        self.args.update(zip(places[told].tolist(), [args[i] for i in told], strict=True))


_USED = (pl.col("cat") != "python_function") | pl.col("name").str.starts_with(MODULE)
"""Of Python's own calls, which may be millions, only modules are shown."""


def _texts(values: list) -> pl.Series:
    """Names and ids as text."""
    return pl.Series(list(map(str, values)), dtype=pl.String)


def _numbers(values: list) -> np.ndarray:
    """The values as floats; NaN where one is no number."""
    if set(map(type, values)) <= {int, float}:
        with contextlib.suppress(OverflowError):
            return np.array(values, dtype=np.float64)
    return np.array([_number(value) for value in values])


def _exact_ns(values: list, times: np.ndarray, in_ns: np.ndarray) -> np.ndarray:
    """Times as whole ns. Whole ns since 1970 do not fit into a float, so those are taken from the values themselves."""
    whole = np.floor(times)
    exact = np.where(in_ns, 0, whole).astype(np.int64) * 1000 + np.rint((times - whole) * 1000).astype(np.int64)
    exact[in_ns] = np.rint(times[in_ns]).astype(np.int64)
    for i in np.flatnonzero(in_ns & (times != 0)).tolist():
        if isinstance(values[i], int):
            exact[i] = values[i]
    return exact


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) else float("nan")
    except (ValueError, OverflowError):
        return float("nan")


def _correlations(args: list[Args | None]) -> pl.Series:
    """The numbers that tie launches to their kernels."""
    values = [None if arg is None else arg.correlation for arg in args]
    try:
        found = pl.Series(values, dtype=pl.Int64, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        found = pl.Series([v if type(v) is int and abs(v) < 2**62 else None for v in values], dtype=pl.Int64)
    return found.set(found < 0, None)
