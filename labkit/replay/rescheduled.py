"""A planned trace under another schedule: a Trace of stages alone and what to change in, a planned Trace out.

A trace that `planned_trace` drew knows durations of stages, not of layers, and no machine. So the ranks stay, with what
each takes for all its stages on one microbatch; their order of work, and how many stages share it, may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from labkit.event import Kind
from labkit.replay.graph import ReplayError
from labkit.replay.planned import planned_trace
from labkit.schedule import SCHEDULES, Durations, Schedule, generate
from labkit.trace import Trace

_PARTS = {
    "F": Kind.STAGE_FORWARD,
    "B": Kind.STAGE_BACKWARD,
    "I": Kind.STAGE_BACKWARD_INPUT,
    "W": Kind.STAGE_BACKWARD_WEIGHT,
}


def reschedule(trace: Trace, changes: Mapping[str, Any]) -> Trace:
    """`trace`, which a schedule was drawn as, with another schedule, order, number of microbatches or stages per rank.

    Durations are those of a microbatch as it was. Raises ReplayError for changes of ranks, ScheduleError for a shape
    that the schedule does not accept.
    """
    ranks = trace.meta.num_ranks
    order = _order(trace, changes)
    other = [axis for axis in ("dp", "tp") if changes.get(axis, 1) != 1]
    if other or order.num_ranks != ranks:
        what = other[0] if other else "pp"
        raise ReplayError(
            f"the trace is a schedule drawn for {ranks} pipeline ranks, so {what} cannot change: what a stage takes on "
            f"other ranks is not known; give a schedule, microbatches or virtual, or draw it anew with labkit schedule"
        )
    per_rank = [_durations(trace, rank) for rank in range(ranks)]
    share = ranks / order.num_stages
    per_stage = [_shared(per_rank[rank], share) for rank in order.placement]
    found = planned_trace(order, per_stage, hop_ns=_hop_ns(trace))
    splits = any(action.kind == "I" for action in order.orders[0])
    halved = splits and trace.of(Kind.STAGE_BACKWARD_INPUT).is_empty()
    note = ("the halves of a backward are not in the trace and are taken as equally long",) if halved else ()
    return found.with_meta(notes=(*found.meta.notes, *note))


def _order(trace: Trace, changes: Mapping[str, Any]) -> Schedule:
    if changes.get("order") is not None:
        return Schedule.from_text(changes["order"])
    plan = trace.meta.plan or {}
    name = changes.get("schedule") or plan["schedule"]
    if "schedule" not in changes and name not in SCHEDULES:
        raise ReplayError(f"the trace is drawn from {name!r}, an order of one's own: give a schedule by name or file")
    virtual = changes.get("virtual") or (plan.get("virtual") if name == plan["schedule"] else None)
    num = changes.get("microbatches") or plan["microbatches"]
    return generate(name, changes.get("pp", trace.meta.num_ranks), num, virtual)


def _durations(trace: Trace, rank: int) -> Durations:
    """What a rank takes for all its stages on one microbatch, in ns."""
    table = trace.of(*_PARTS.values()).filter(pl.col("rank") == rank).group_by("kind", "stage")
    took = table.agg((pl.col("end_ns") - pl.col("start_ns")).median().alias("took")).group_by("kind").agg(
        pl.col("took").sum()
    )  # fmt: skip
    known = {str(kind): float(ns) for kind, ns in took.iter_rows()}
    forward, whole, inputs, weights = (known.get(str(kind), 0.0) for kind in _PARTS.values())
    return Durations(forward=forward, backward_input=inputs + whole / 2, backward_weight=weights + whole / 2)


def _shared(whole: Durations, share: float) -> Durations:
    return Durations(
        forward=whole.forward * share,
        backward_input=whole.backward_input * share,
        backward_weight=whole.backward_weight * share,
    )


def _hop_ns(trace: Trace) -> float:
    """What a message takes: the least from a send to the end of its receive, which may be asked for late."""
    syncs = trace.of(Kind.SYNC)
    sends = syncs.filter(pl.col("op") == "send").select(
        pl.col("rank").alias("peer"), pl.col("peer").alias("rank"), "seq", pl.col("start_ns").alias("sent_ns")
    )
    met = syncs.filter(pl.col("op") == "recv").join(sends, on=["rank", "peer", "seq"])
    return float((met["end_ns"] - met["sent_ns"]).min() or 0)
