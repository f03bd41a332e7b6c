"""Where each rank's time went: compute, sync, idle.

In: a Trace. Out: a table with a row per rank. `breakdown` is in our words; `temporal_breakdown` uses the definitions
of HolisticTraceAnalysis, so that numbers of imported profiler files can be compared with other tools.
"""

from __future__ import annotations

import polars as pl

from labkit.analysis.activity import Activity, activities
from labkit.trace import Trace

_BREAKDOWN = {
    "rank": pl.Int32,
    "window_ns": pl.Int64,
    "compute_ns": pl.Int64,
    "overlapped_sync_ns": pl.Int64,
    "exposed_sync_ns": pl.Int64,
    "idle_ns": pl.Int64,
}


def breakdown(trace: Trace) -> pl.DataFrame:
    """Each rank's window cut into compute alone, compute with a sync under way, sync alone, and neither.

    Columns rank, window_ns, compute_ns (nothing under way), overlapped_sync_ns (computing while a sync is under way),
    exposed_sync_ns (a sync is under way, or the rank is blocked in it, and nothing is computed), idle_ns (neither).
    The last four add up to window_ns. `activity` says what the window is.

    A step from 0 to 10, work from 0 to 4 and 8 to 10, a sync from 3 to 7: compute 5, overlapped 1, exposed 3, idle 1.
    """
    return pl.DataFrame([_breakdown_row(each) for each in activities(_times(trace))], schema=_BREAKDOWN, orient="row")


def _times(trace: Trace) -> Trace:
    """The events with only what their sets of time are made of: moving the other columns about takes longer."""
    return Trace(trace.events.select("rank", "kind", "step", "start_ns", "end_ns", "op"), trace.meta)


def _breakdown_row(activity: Activity) -> tuple[int, ...]:
    work, sync, window = activity.work, activity.sync, activity.window
    both, exposed = (work & sync).total_ns, (sync - work).total_ns
    compute = work.total_ns - both
    return activity.rank, window.total_ns, compute, both, exposed, window.total_ns - compute - both - exposed


def overlap_percent(trace: Trace) -> dict[int, float | None]:
    """Share of each rank's sync time during which it computed, in percent; None for a rank without syncs.

    Work from 0 to 4 and 8 to 10, a sync from 3 to 7: 1 of 4, so 25 %.
    """
    return {activity.rank: _overlap_percent(activity) for activity in activities(_times(trace))}


def _overlap_percent(activity: Activity) -> float | None:
    sync_ns = activity.sync.total_ns
    return 100 * (activity.work & activity.sync).total_ns / sync_ns if sync_ns else None


_TEMPORAL = {
    "rank": pl.Int32,
    "idle_ns": pl.Int64,
    "compute_ns": pl.Int64,
    "non_compute_ns": pl.Int64,
    "exposed_sync_ns": pl.Int64,
    "overlap_percent": pl.Float64,
}


def temporal_breakdown(trace: Trace) -> pl.DataFrame:
    """Idle, compute and non-compute time per rank, as HolisticTraceAnalysis defines them.

    compute_ns: at least one compute kernel runs. non_compute_ns: kernels run, but only syncs or memory copies.
    idle_ns: no kernel runs between the first and the last. The three add up to the window. exposed_sync_ns: a sync runs
    and no compute kernel (part of non_compute_ns). overlap_percent: share of sync time covered by compute; null
    without syncs. On our own traces compute is work, and idle is what of the steps is neither work nor sync.

    Imported traces are counted in whole us as HolisticTraceAnalysis counts them: every start is rounded up and every
    end down, so files with fractions of us show a little less busy time than `breakdown`, which is exact.

    Compute kernel 0 to 4, copy 4 to 6, sync 5 to 8, compute 9 to 10: idle 1, compute 5, non-compute 4, exposed 3.
    """
    unit_ns = 1000 if trace.meta.source == "imported" else 1
    return pl.DataFrame(
        [_temporal_row(each) for each in activities(_times(trace), unit_ns=unit_ns)], schema=_TEMPORAL, orient="row"
    )


def _temporal_row(activity: Activity) -> tuple[int | float | None, ...]:
    work, sync = activity.work, activity.sync
    busy_ns = (work | sync | activity.copy).total_ns
    return (
        activity.rank,
        activity.window.total_ns - busy_ns,
        work.total_ns,
        busy_ns - work.total_ns,
        (sync - work).total_ns,
        _overlap_percent(activity),
    )
