"""A rank's time as a profiler would have seen it on a GPU: kernels, syncs and steps that do not nest.

In: a `Trace`. Out: a `Process` for each rank.

Of our own traces: work without the waits in it, cut to the steps and named by the innermost span (a layer, else its
stage), and the syncs, cut to the steps as well. Totals of compute, exposed sync and overlap are those of `analysis`;
what lies between steps is idle time for such readers. Of a trace that was imported: its kernels as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import polars.selectors as cs

from labkit.analysis.activity import WORK_KINDS, Activity, activities
from labkit.analysis.intervals import Intervals
from labkit.analysis.paint import paint
from labkit.event import Kind
from labkit.trace import SCHEMA, Trace

_CLOSING_NS = 1000
"""The empty step after the last one begins so much later, and lasts so long."""


@dataclass(frozen=True, eq=False)
class Process:
    """One rank, as a profiler's file has it."""

    rank: int
    steps: pl.DataFrame  # step, start_ns, end_ns
    kernels: pl.DataFrame  # KERNELS, by start


_OF_SYNC = ("op", "axis", "group", "peer", "size_bytes", "dtype", "seq")

KERNELS = {
    "kind": pl.String,  # kernel or sync
    "name": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "launch_ns": pl.Int64,  # within the kernel's step; null where the trace does not tell the step
    **{name: SCHEMA[name] for name in _OF_SYNC},
}


def processes(trace: Trace) -> Iterator[Process]:
    """Every rank that has events, ascending."""
    has_kernels = set(trace.of(Kind.KERNEL)["rank"].unique())
    imported = trace.events.filter(pl.col("rank").is_in(list(has_kernels)))
    of_rank = {rows["rank"][0]: rows for rows in imported.partition_by("rank")}
    for activity in activities(trace):
        rows = of_rank.get(activity.rank)
        yield _of_work(activity) if rows is None else _of_kernels(rows)


# ---- a trace of our own


def _of_work(activity: Activity) -> Process:
    steps = _with_closing(activity.windows)
    kernels = pl.concat([_shaped(part) for part in (_work(activity), _syncs(activity), _edges(activity))])
    kernels = kernels.with_columns(launch_ns=pl.col("start_ns")).sort("start_ns", maintain_order=True)
    return Process(activity.rank, *_in_whole_us(activity, steps, kernels))


def _with_closing(windows: pl.DataFrame) -> pl.DataFrame:
    """The steps, numbered, and an empty one after them."""
    number = pl.col("step").fill_null(pl.int_range(pl.len(), dtype=pl.Int32)).alias("step")
    steps = windows.select(number, "start_ns", "end_ns")
    last, end_ns = steps["step"].max() or 0, steps["end_ns"].max() or 0
    row = {"step": last + 1, "start_ns": end_ns + _CLOSING_NS, "end_ns": end_ns + 2 * _CLOSING_NS}
    return pl.concat([steps, pl.DataFrame([row], schema=steps.schema)])


def _work(activity: Activity) -> pl.DataFrame:
    """Pieces of work, each named by the innermost span there: later rows win, and outer spans come first."""
    is_work = pl.col("kind").cast(pl.String).is_in(WORK_KINDS)
    rows = activity.rows.filter(is_work).sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    name = pl.concat_str(pl.col("kind").cast(pl.String), pl.coalesce("layer", pl.lit("")), separator=" ")
    return _painted(activity, activity.work, rows.with_columns(name.str.strip_chars().alias("name"))).with_columns(
        kind=pl.lit(str(Kind.KERNEL)), op=pl.lit(None, dtype=pl.String)
    )


def _painted(activity: Activity, area: Intervals, rows: pl.DataFrame) -> pl.DataFrame:
    """The pieces of an area, each with the columns of the row that shows in it."""
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    pieces = paint(area, starts, ends, cuts=activity.windows["start_ns"].to_numpy())
    return rows[pieces.owner].with_columns(start_ns=pl.Series(pieces.starts), end_ns=pl.Series(pieces.ends))


def _syncs(activity: Activity) -> pl.DataFrame:
    """Every sync, cut to the steps; then what of the waits lies in no sync."""
    kind = pl.col("kind").cast(pl.String)
    syncs, windows = activity.rows.filter(kind == str(Kind.SYNC)), activity.windows.select("start_ns", "end_ns")
    cut = syncs.join_where(
        windows.rename({"start_ns": "from_ns", "end_ns": "to_ns"}),
        pl.col("start_ns") < pl.col("to_ns"),
        pl.col("end_ns") > pl.col("from_ns"),
    ).with_columns(pl.max_horizontal("start_ns", "from_ns"), pl.min_horizontal("end_ns", "to_ns").alias("end_ns"))
    rest = activity.sync - Intervals.of_rows(cut)
    waits = _painted(activity, rest, activity.rows.filter(kind == str(Kind.WAIT))) if len(rest) else syncs.clear()
    return pl.concat([cut.select(syncs.columns), waits]).with_columns(kind=pl.lit(str(Kind.SYNC)), name=_sync_name())


def _edges(activity: Activity) -> pl.DataFrame:
    """Kernels of no length at the steps' first start and last end: readers count time from kernel to kernel."""
    windows = activity.windows
    edges = [windows["start_ns"].min(), windows["end_ns"].max()] if windows.height else []
    at = pl.Series(edges, dtype=pl.Int64)
    return pl.DataFrame({"start_ns": at, "end_ns": at}).with_columns(
        kind=pl.lit(str(Kind.KERNEL)), name=pl.lit("edge of the recorded steps")
    )


def _in_whole_us(activity: Activity, *tables: pl.DataFrame) -> list[pl.DataFrame]:
    """The tables with all times in whole us: readers round fractions inwards, and every kernel would lose up to 2 us.

    Remainders are carried over, separately for compute, overlap, sync alone and neither. So each of these four totals
    stays right to half a us, and no moment moves by more than 3 us.
    """
    times = cs.ends_with("_ns")
    bounds = np.unique(np.concatenate([table.select(times).to_numpy().ravel() for table in tables]))
    lengths_ns, what = np.diff(bounds), _inside(activity.work, bounds) + 2 * _inside(activity.sync, bounds)
    lengths_us = np.zeros(len(lengths_ns), np.int64)
    for one in range(4):
        of_one = np.flatnonzero(what == one)
        lengths_us[of_one] = np.diff((np.cumsum(lengths_ns[of_one]) + 500) // 1000, prepend=0)
    moved = 1000 * (bounds[0] // 1000 + np.concatenate([[0], np.cumsum(lengths_us)]))

    def whole(exact: pl.Series) -> pl.Series:
        return pl.Series(exact.name, moved[np.searchsorted(bounds, exact.to_numpy())])

    return [table.with_columns(whole(exact) for exact in table.select(times)) for table in tables]


def _inside(area: Intervals, bounds: np.ndarray) -> np.ndarray:
    """For each stretch between two bounds whether it lies in the area; the area's own borders are among the bounds."""
    block = np.searchsorted(area.starts, bounds[:-1], side="right") - 1
    return (block >= 0) & (bounds[:-1] < area.ends[block]) if len(area) else np.zeros(len(bounds) - 1, bool)


# ---- an imported trace


def _of_kernels(rows: pl.DataFrame) -> Process:
    """Kernels and syncs as they are, each launched within the step that the trace tells."""
    kind = pl.col("kind").cast(pl.String)
    steps = rows.filter(kind == str(Kind.STEP)).select("step", "start_ns", "end_ns").sort("start_ns")
    until = pl.max_horizontal("from_ns", pl.col("from_ns").shift(-1).fill_null(2**62) - 1)
    ranges = steps.select("step", from_ns="start_ns").with_columns(until.alias("until_ns"))
    kernels = rows.filter(kind.is_in([str(Kind.KERNEL), str(Kind.SYNC)])).join(ranges, on="step", how="left")
    launch = pl.col("start_ns").clip("from_ns", "until_ns") if steps.height else pl.col("start_ns")
    is_sync = kind == str(Kind.SYNC)
    name = pl.when(is_sync).then(_sync_name()).otherwise(pl.coalesce("layer", "op", pl.lit("kernel")))
    told = pl.col("step").is_not_null() | (steps.height == 0)
    kernels = kernels.with_columns(
        kind.alias("kind"), name.alias("name"), pl.when(told).then(launch).alias("launch_ns")
    )
    return Process(rows["rank"][0], steps, _shaped(kernels).sort("start_ns", maintain_order=True))


def _sync_name() -> pl.Expr:
    """ "ncclKernel_AllReduce(dp)": by such names readers know a sync."""
    op = pl.col("op").fill_null("sync").str.to_titlecase().str.replace_all("_", "")
    return pl.format("ncclKernel_{}({})", op, pl.col("axis").fill_null(""))


def _shaped(kernels: pl.DataFrame) -> pl.DataFrame:
    absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in KERNELS.items() if name not in kernels.columns]
    return kernels.with_columns(absent).select(list(KERNELS)).cast(KERNELS)
