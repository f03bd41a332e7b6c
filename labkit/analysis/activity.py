"""What each rank was doing: its windows, its work, its syncs and its waits, as sets of time.

In: a Trace. Out: one `Activity` per rank, from which breakdown, gaps and critical path are made.

A rank's *window* is the time that is asked about. It is made of, in this order of preference:
- kernels of an imported trace: from the first to the last of them (what profilers call the kernel time), without the
  last of several profiler steps, in which recording ended, and without kernels whose launch was not recorded;
- `step` events: these, so what lies between steps is left out;
- otherwise (a planned schedule) each step from the first start to the last end of any rank.
*Work* is the union of stages, layers, loss, loading, zeroing and optimizer (or of compute kernels), less the waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from labkit.analysis.intervals import Intervals
from labkit.event import LAYER_KINDS, STAGE_KINDS, Kind
from labkit.trace import Trace

WORK_KINDS = tuple(map(str, (*STAGE_KINDS, *LAYER_KINDS, Kind.LOAD, Kind.ZERO_GRAD, Kind.OPTIMIZER)))
"""Kinds whose time is work of a rank, where no GPU kernels were recorded."""

COPIES = ("memcpy", "memset")
"""`op` of kernels that move memory: neither compute nor sync."""


@dataclass(frozen=True, eq=False)
class Activity:
    """One rank's time, each set within `window`."""

    rank: int
    windows: pl.DataFrame  # step, start_ns, end_ns: disjoint, ascending
    window: Intervals
    work: Intervals  # computing
    sync: Intervals  # at least one sync is under way, or the rank is blocked in one
    copy: Intervals  # GPU memory copies
    rows: pl.DataFrame  # the rank's events

    @property
    def gap(self) -> Intervals:
        """What of the window is neither work nor copying."""
        return self.window - (self.work | self.copy)


def activities(trace: Trace, *, unit_ns: int = 1) -> Iterator[Activity]:
    """Every rank of the trace that has events, ascending.

    `unit_ns` rounds every event inwards to whole units (starts up, ends down), as tools that count in us do.
    """
    events = trace.events.filter(pl.col("kind") != str(Kind.VALUE)).sort("rank", maintain_order=True)
    if unit_ns > 1:
        start, end = pl.col("start_ns"), pl.col("end_ns")
        events = events.with_columns(-(-start // unit_ns) * unit_ns, end // unit_ns * unit_ns)
    shared = _shared_windows(events)
    for rows in events.partition_by("rank", maintain_order=True):
        yield _activity(rows, shared)


def _activity(rows: pl.DataFrame, shared: pl.DataFrame) -> Activity:
    kind = pl.col("kind").cast(pl.String)
    if (rows["kind"] == str(Kind.KERNEL)).any():
        return _of_kernels(rows)
    windows = _own_windows(rows, shared)
    window, blocked = Intervals.of_rows(windows), Intervals.of_rows(rows.filter(kind == str(Kind.WAIT)))
    work = Intervals.of_rows(rows.filter(kind.is_in(WORK_KINDS))) - blocked
    sync = Intervals.of_rows(rows.filter(kind == str(Kind.SYNC))) | blocked
    return Activity(rows["rank"][0], windows, window, work & window, sync & window, Intervals.of([], []), rows)


def _of_kernels(rows: pl.DataFrame) -> Activity:
    kind = pl.col("kind").cast(pl.String)
    on_gpu = _in_whole_steps(rows.filter(kind.is_in([str(Kind.KERNEL), str(Kind.SYNC)])), rows)
    is_kernel, is_copy = kind == str(Kind.KERNEL), pl.col("op").is_in(COPIES).fill_null(False)
    windows = _span_of(on_gpu)
    return Activity(
        rank=rows["rank"][0],
        windows=windows,
        window=Intervals.of_rows(windows),
        work=Intervals.of_rows(on_gpu.filter(is_kernel & ~is_copy)),
        sync=Intervals.of_rows(on_gpu.filter(~is_kernel)),
        copy=Intervals.of_rows(on_gpu.filter(is_kernel & is_copy)),
        rows=on_gpu,
    )


def _in_whole_steps(kernels: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The kernels launched before the last step began; all, where there are not several steps."""
    steps = rows.filter(pl.col("kind").cast(pl.String) == str(Kind.STEP))["step"].drop_nulls().unique()
    return kernels.filter(pl.col("step") < steps.max()) if len(steps) > 1 else kernels


def _span_of(rows: pl.DataFrame) -> pl.DataFrame:
    """One window from the first start to the last end."""
    step = pl.lit(None, dtype=pl.Int32).alias("step")
    return rows.select(step, pl.col("start_ns").min(), pl.col("end_ns").max()).drop_nulls("start_ns")


def _own_windows(rows: pl.DataFrame, shared: pl.DataFrame) -> pl.DataFrame:
    """The rank's own steps; where none were recorded, the steps of all ranks."""
    steps = rows.filter(pl.col("kind").cast(pl.String) == "step").select("step", "start_ns", "end_ns")
    return _disjoint(steps) if steps.height else shared


def _shared_windows(events: pl.DataFrame) -> pl.DataFrame:
    """Each step from the first start to the last end over all ranks; everything, where no step is told."""
    of_steps = events.filter(pl.col("step").is_not_null())
    if of_steps.is_empty():
        return _span_of(events)
    return _disjoint(of_steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()))


def _disjoint(windows: pl.DataFrame) -> pl.DataFrame:
    """Windows in order of time; one that starts inside an earlier one starts at its end."""
    reached = pl.col("end_ns").cum_max().shift(1)
    windows = windows.sort("start_ns", "end_ns").with_columns(pl.max_horizontal("start_ns", reached).alias("start_ns"))
    return windows.filter(pl.col("end_ns") > pl.col("start_ns")).select("step", "start_ns", "end_ns")
