"""What each rank was doing: its windows, its work, its syncs and its waits, as sets of time.

In: a Trace. Out: one `Activity` per rank, from which breakdown, gaps and critical path are made.

A rank's *window* is the time that is asked about: its steps, as `steps` defines them; of an imported trace with
kernels, from the first to the last kernel (what profilers call the kernel time), without the last of several profiler
steps, in which recording ended, and without kernels whose launch was not recorded.
*Work* is the union of stages, layers, loss, loading, zeroing and optimizer (or of compute kernels), less the waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from labkit.analysis.intervals import Intervals
from labkit.analysis.steps import span_of, windows
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
    rows: pl.DataFrame  # the rank's events, with their row in the trace (`event`)

    @property
    def gap(self) -> Intervals:
        """What of the window is neither work nor copying."""
        return self.window - (self.work | self.copy)


def activities(trace: Trace, *, unit_ns: int = 1) -> Iterator[Activity]:
    """Every rank of the trace that has events, ascending.

    `unit_ns` rounds every event inwards to whole units (starts up, ends down), as tools that count in us do.
    """
    events = trace.events.with_row_index("event").filter(pl.col("kind") != str(Kind.VALUE))
    events = events.sort("rank", maintain_order=True)
    if unit_ns > 1:
        start, end = pl.col("start_ns"), pl.col("end_ns")
        events = events.with_columns(-(-start // unit_ns) * unit_ns, end // unit_ns * unit_ns)
    of_rank = windows(Trace(events, trace.meta))
    for rows in events.partition_by("rank", maintain_order=True):
        yield _activity(rows, of_rank[rows["rank"][0]])


def _activity(rows: pl.DataFrame, steps: pl.DataFrame) -> Activity:
    kind = pl.col("kind").cast(pl.String)
    if (rows["kind"] == str(Kind.KERNEL)).any():
        return _of_kernels(rows)
    window, blocked = Intervals.of_rows(steps), Intervals.of_rows(rows.filter(kind == str(Kind.WAIT)))
    work = Intervals.of_rows(rows.filter(kind.is_in(WORK_KINDS))) - blocked
    sync = Intervals.of_rows(rows.filter(kind == str(Kind.SYNC))) | blocked
    return Activity(rows["rank"][0], steps, window, work & window, sync & window, Intervals.of([], []), rows)


def _of_kernels(rows: pl.DataFrame) -> Activity:
    kind = pl.col("kind").cast(pl.String)
    on_gpu = _in_whole_steps(rows.filter(kind.is_in([str(Kind.KERNEL), str(Kind.SYNC)])), rows)
    is_kernel, is_copy = kind == str(Kind.KERNEL), pl.col("op").is_in(COPIES).fill_null(False)
    steps = span_of(on_gpu)
    return Activity(
        rank=rows["rank"][0],
        windows=steps,
        window=Intervals.of_rows(steps),
        work=Intervals.of_rows(on_gpu.filter(is_kernel & ~is_copy)),
        sync=Intervals.of_rows(on_gpu.filter(~is_kernel)),
        copy=Intervals.of_rows(on_gpu.filter(is_kernel & is_copy)),
        rows=on_gpu,
    )


def _in_whole_steps(kernels: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The kernels launched before the last step began; all, where there are not several steps."""
    steps = rows.filter(pl.col("kind").cast(pl.String) == str(Kind.STEP))["step"].drop_nulls().unique()
    return kernels.filter(pl.col("step") < steps.max()) if len(steps) > 1 else kernels
