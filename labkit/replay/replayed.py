"""A captured run under other conditions: a Trace and Changes in, a Trace of the same events at other times out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import polars as pl

from labkit.event import Kind
from labkit.mesh import AXES
from labkit.replay.captured import captured
from labkit.replay.changes import Changes
from labkit.replay.graph import ReplayError
from labkit.replay.program import play_program
from labkit.trace import Trace


def replay(trace: Trace, changes: Changes | None = None) -> Trace:
    """The run of `trace` again, under `changes`; without any, as it was.

    Own work keeps its duration, dependencies and order of work are kept, waits follow from them. A stage waits for
    its message, the optimizer for the last sync, buckets overlap backward. Source "replayed"; the notes say what was
    changed and repaired. A link of all axes is taken for those with syncs. Raises ReplayError for a trace that lacks
    ranks or whole steps, and for the link of a single axis without syncs.
    """
    asked = changes or Changes()
    changes = on_axes_of(trace, asked)
    unknown = sorted(rank for rank in changes.slow_ranks if rank >= trace.meta.num_ranks)
    if unknown:
        raise ReplayError(f"slow rank {unknown[0]}: the trace has ranks 0 to {trace.meta.num_ranks - 1}")
    found = captured(trace, changes)
    rows = play_program(found.program).with_columns(pl.lit(None, dtype=pl.Int64).alias("late_ns"))
    events = rows
    if found.setup.height:
        events = pl.concat([found.setup.select(rows.columns), rows]).sort("start_ns", "rank", maintain_order=True)
    notes = (f"replayed: {', '.join(changes.words()) or 'as it was'}", *found.repairs, *_limits(trace, changes))
    result = Trace(events, trace.meta)
    meta = replace(
        trace.meta,
        source="replayed",
        plan=_plan(trace, asked),
        notes=notes,
        seconds={"step_median": step_ns(result) / 1e9},
        dropped_events=0,
    )
    return replace(result, meta=meta)


def on_axes_of(trace: Trace, changes: Changes) -> Changes:
    """The changes with links of only those axes that have syncs in the trace.

    A link of all axes leaves out the others; that of a single axis without syncs would change nothing: ReplayError.
    """
    if not changes.link:
        return changes
    axes = trace.of("sync").filter(pl.col("step").is_not_null())["axis"].drop_nulls().unique().to_list()
    known = {axis.partition("+")[0] for axis in axes}
    absent = [axis for axis in changes.link if axis not in known]
    if absent and set(changes.link) != set(AXES):
        has = f"has syncs of {', '.join(axis for axis in AXES if axis in known)}" if known else "holds no sync"
        raise ReplayError(f"{absent[0]} link: no sync of the trace goes over it; the trace {has}")
    return replace(changes, link={axis: link for axis, link in changes.link.items() if axis in known})


def step_ns(trace: Trace) -> float:
    """How long a step takes: of each step the longest of all ranks, the median over the steps.

    A pipeline's ranks enter a step at different times; each rank's step then holds its waiting for the others.
    """
    steps = trace.events.select("kind", "step", "start_ns", "end_ns").filter(pl.col("kind") == Kind.STEP)
    if steps.is_empty():
        raise ReplayError("the trace holds no step event, so it has no step time: record 'compute'")
    longest = steps.group_by("step").agg((pl.col("end_ns") - pl.col("start_ns")).max().alias("took_ns"))
    return float(longest["took_ns"].median())


def exposed_sync_ns(trace: Trace) -> dict[str, float]:
    """Per axis: how long a rank is blocked in one step, on average over ranks and steps.

    Waits that overlap count once.
    """
    waits = trace.of(Kind.WAIT).filter(pl.col("step").is_not_null()).sort("rank", "axis", "start_ns")
    group = ["rank", "axis"]
    before = pl.col("end_ns").cum_max().shift(1).over(group).fill_null(0)
    alone = (pl.col("end_ns") - pl.max_horizontal("start_ns", before)).clip(0)
    table = waits.with_columns(alone.alias("alone_ns")).group_by("axis").agg(pl.col("alone_ns").sum()).sort("axis")
    num = trace.meta.num_ranks * max(1, trace.of(Kind.STEP)["step"].n_unique())
    return {axis: total / num for axis, total in table.iter_rows()}


def _plan(trace: Trace, changes: Changes) -> dict[str, Any] | None:
    """The plan with the links that the replay took."""
    if trace.meta.plan is None or not (changes.link or changes.infinite_bandwidth or changes.no_sync):
        return trace.meta.plan
    links = dict(trace.meta.plan.get("link") or {}) | msgspec.to_builtins(dict(changes.link))
    if changes.infinite_bandwidth or changes.no_sync:
        links = {}  # no link of a plan is like that: what is left of a sync's cost is in its times
    return trace.meta.plan | {"link": links or None}


def _limits(trace: Trace, changes: Changes) -> tuple[str, ...]:
    """What a reader must know before trusting the times."""
    notes = ()
    emulated = (trace.meta.plan or {}).get("link") or (trace.meta.plan or {}).get("pace")
    if changes.device_time == "cpu":
        notes += ("a sync costs the least that one of its axis, operation and size took",) if not emulated else ()
        notes += (
            "what the host does between pieces of computation counts as hidden behind the device, as in a paced run",
        )
    if changes.infinite_bandwidth and not emulated and not changes.link:
        notes += ("no link was set: the least that an operation took on its axis stands for its latency",)
    return notes
