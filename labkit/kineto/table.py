"""A profiler file's events as one table with times in whole ns.

In: lists of events. Out: a polars table of the spans (`ph` X), and notes on spans that had to be left out.

Profilers write us, with a fraction since 2024; some tools rewrite them in ns. Times since 1970 tell by their size which
it is. Whole us are kept exactly; fractions are rounded to 1 ns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import polars as pl

from labkit.kineto.events import Args, Event, Span
from labkit.kineto.words import MODULE

_NS_FROM = 1e17
"""Times since 1970 are 1.7e15 in us and 1.7e18 in ns: beyond this it can only be ns."""

_LATEST_NS = float(2**62)
_LONGEST_NS = 1e9 * 3600 * 24 * 30

_AT_ONCE = 1 << 13
"""Spans that are put into columns together: few enough to be small, so many that what a column costs does not count."""

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
        self._spans: list[Span] = []  # those that are in no table yet
        self._places: list[int] = []
        self._num_events = self._num_bad = self._num_ns = 0
        self._first_bad: int | None = None

    def add(self, events: Sequence[Event]) -> None:
        """The next events of the file."""
        is_used = [type(event) is Span and event.cat not in _NO_CATEGORY for event in events]
        self._spans.extend(itertools.compress(events, is_used))
        self._places.extend(itertools.compress(itertools.count(self._num_events), is_used))
        self._num_events += len(events)
        if len(self._spans) > _AT_ONCE:
            self._to_table()

    def table(self, name: str) -> tuple[pl.DataFrame, list[str]]:
        """Every complete span, in the order of the file; columns SPANS. `name`: the file's, for notes."""
        self._to_table()
        whole = pl.concat(self._tables)
        self._tables.clear()
        notes = [f"{name}: {self._num_ns:,} times are in ns, not us: taken as ns"] if self._num_ns else []
        if self._num_bad:
            said = f"{self._num_bad:,} events without a usable start or duration left out"
            notes.append(f"{name}: {said} (first: event {self._first_bad:,})")
        return whole, notes

    def _to_table(self) -> None:
        spans, places, self._spans, self._places = self._spans, self._places, [], []
        args = [span.args for span in spans]
        self._keep_args(args, places)
        start_ns, end_ns, is_good = self._times([span.ts for span in spans], [span.dur for span in spans], places)
        table = pl.DataFrame(
            {
                "cat": _texts([span.cat for span in spans]).str.to_lowercase(),
                "name": _texts([span.name for span in spans]),
                "pid": _texts([span.pid for span in spans]),
                "tid": _texts([span.tid for span in spans]),
                "start_ns": start_ns,
                "end_ns": end_ns,
                "correlation": _correlations(args),
                "event": places,
            },
            schema=SPANS,
        )
        is_used = table.select(_USED).to_series() & is_good
        self._tables.append(table if is_used.all() else table.filter(is_used))

    def _times(self, ts: list, dur: list, places: list[int]) -> tuple[pl.Series, pl.Series, pl.Series]:
        """(start_ns, end_ns, which are usable)"""
        starts, durations = _numbers(ts), _numbers(dur)
        in_ns = starts.cast(pl.Float64).abs() > _NS_FROM
        unit_ns = 1000.0 - 999.0 * in_ns
        is_good = (starts * unit_ns).abs() < _LATEST_NS
        is_good = is_good & (durations >= 0) & (durations * unit_ns < _LONGEST_NS)
        self._num_ns += in_ns.sum()
        bad = (~is_good).arg_true()
        if len(bad):
            self._num_bad += len(bad)
            self._first_bad = places[bad[0]] if self._first_bad is None else self._first_bad
        start_ns = _exact_ns(ts, starts, in_ns)
        return start_ns, start_ns + _exact_ns(dur, durations, in_ns), is_good

    def _keep_args(self, args: list[Args | None], places: list[int]) -> None:
        told = [i for i, a in enumerate(args) if a is not None and (a.collective is not None or a.rank is not None)]
        self.args.update((places[i], args[i]) for i in told)


_NO_CATEGORY = (None, "Trace")

_USED = (pl.col("cat") != "python_function") | pl.col("name").str.starts_with(MODULE)
"""Of Python's own calls, which may be millions, only modules are shown."""


def _texts(values: list) -> pl.Series:
    """Names and ids as text."""
    found = _series(values)
    if found is None or found.dtype not in (pl.String, pl.Int64) or found.null_count():
        found = pl.Series(list(map(str, values)), dtype=pl.String)
    return found.cast(pl.String)


def _numbers(values: list) -> pl.Series:
    """The values as whole numbers where all are, else as floats; infinite where one is no number."""
    found = _series(values)
    if found is not None and found.dtype in (pl.Int64, pl.Float64) and not found.null_count():
        return found.fill_nan(math.inf) if found.dtype == pl.Float64 else found
    return pl.Series([_number(value) for value in values], dtype=pl.Float64)


def _series(values: list) -> pl.Series | None:
    """None for values of different types."""
    try:
        return pl.Series(values)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return None


def _exact_ns(values: list, times: pl.Series, in_ns: pl.Series) -> pl.Series:
    """Times as whole ns. Whole ns since 1970 do not fit into a float, so those are taken from the values themselves."""
    time, is_ns = pl.lit(times), pl.lit(in_ns)
    if times.dtype == pl.Int64:
        return pl.select(pl.when(is_ns).then(time).otherwise(time * 1000)).to_series()
    whole = time.floor()
    exact = _whole(whole) * 1000 + _whole(((time - whole) * 1000).round(mode="half_to_even"))
    if in_ns.any():
        written = pl.Series([v if isinstance(v, int) and abs(v) < _LATEST_NS else None for v in values], dtype=pl.Int64)
        exact = pl.when(is_ns).then(pl.coalesce(written, _whole(time.round(mode="half_to_even")))).otherwise(exact)
    return pl.select(exact).to_series()


def _whole(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.Int64, strict=False)


def _number(value: object) -> float:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.inf
    except (ValueError, OverflowError):
        return math.inf
    return math.inf if math.isnan(number) else number


def _correlations(args: list[Args | None]) -> pl.Series:
    """The numbers that tie launches to their kernels."""
    values = [None if arg is None else arg.correlation for arg in args]
    try:
        found = pl.Series(values, dtype=pl.Int64, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        found = pl.Series([v if type(v) is int and abs(v) < 2**62 else None for v in values], dtype=pl.Int64)
    return found.set(found < 0, None)
