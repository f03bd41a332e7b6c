"""Traces that no picture expects: nothing in them, one of everything, far too many ranks, no length, monstrous names.

`SCENES` makes every scene of a trace; `ODD` makes for each oddity a trace for each scene.
"""

from collections.abc import Callable
from functools import cache

import example_traces as examples
import memory_traces
import message_traces as messages
import polars as pl
import value_traces as values
from anywidget import AnyWidget

from labkit.mesh import Mesh
from labkit.trace import Meta, Trace, from_events
from labkit.view.all_reduce import all_reduce
from labkit.view.batch_flow import batch_flow
from labkit.view.matrix_shard import matrix_shard
from labkit.view.memory_lanes import memory_lanes
from labkit.view.mesh_grid import mesh_grid
from labkit.view.timeline import timeline

SCENES: dict[str, Callable[[Trace], AnyWidget]] = {
    "timeline": lambda trace: timeline(trace, memory=True, path=trace.meta.num_ranks < 100),
    "mesh": mesh_grid,
    "memory": memory_lanes,
    "batch": batch_flow,
    "reduce": all_reduce,
    "matrix": matrix_shard,
}

USUAL: dict[str, Callable[[], Trace]] = {
    "timeline": lambda: examples.one_f_one_b(num_stages=2, num_microbatches=2),
    "mesh": examples.mixed,
    "memory": memory_traces.piles,
    "batch": lambda: examples.data_parallel(2),
    "reduce": messages.ring,
    "matrix": values.cut_layer,
}

MARKUP = '<img src=x onerror="document.title=1">'
HUGE = "a_very_long_name." * 500


def one_rank() -> Trace:
    """Everything on one rank, which has nobody to talk to."""
    rows = [row for row in examples.data_parallel(1, num_steps=1).events.to_dicts() if row["kind"] != "sync"]
    held = dict(param_bytes=8, grad_bytes=0, optimizer_bytes=0, activation_bytes=4)
    return from_events([row | held for row in rows], Meta("measured", plan={"task": "digits"}, num_ranks=1))


@cache
def many_ranks() -> Trace:
    """512 ranks on three axes, each with a load, a forward, a sync of each kind and its memory."""
    mesh, rows = Mesh(8, 8, 8), []
    for rank in range(mesh.num_ranks):
        at = dict(rank=rank, step=0, microbatch=0, stage=mesh.coordinate(rank)["pp"], param_bytes=rank)
        at |= dict(start_ns=rank % 7, end_ns=20 + rank % 5)
        rows += [dict(kind="load", samples=[2 * rank, 2 * rank + 1], **at), dict(kind="stage_forward", **at)]
        sync = dict(kind="sync", size_bytes=8, dtype="float64", seq=0) | at
        rows.append(sync | dict(op="all_reduce", axis="tp", group=list(mesh.group("tp", rank))))
        group = list(mesh.group("dp", rank))
        k = group.index(rank)
        rows.append(sync | dict(op="send", axis="dp", group=group, peer=group[(k + 1) % len(group)]))
        rows.append(sync | dict(op="recv", axis="dp", group=group, peer=group[k - 1]))
    return from_events(rows, Meta("predicted", plan={"task": "chars", "pp": 8, "dp": 8, "tp": 8}, num_ranks=512))


def without_length(trace: Trace) -> Trace:
    """All of it in one moment."""
    return Trace(trace.events.with_columns(start_ns=pl.lit(5, pl.Int64), end_ns=pl.lit(5, pl.Int64)), trace.meta)


def renamed(trace: Trace, name: str) -> Trace:
    """Layers, task, schedule and note are called `name`."""
    plan, layers = (
        (trace.meta.plan or {}) | {"task": name, "schedule": name},
        tuple(name + one for one in trace.meta.layers),
    )
    events = trace.events.with_columns(layer=pl.lit(name) + pl.col("layer"))
    return Trace(events, trace.meta).with_meta(plan=plan, layers=layers, notes=(name,))


ODD: dict[str, Callable[[str], Trace]] = {
    "no events": lambda scene: examples.empty(),
    "one event": lambda scene: examples.single(),
    "one rank": lambda scene: one_rank(),
    "512 ranks": lambda scene: many_ranks(),
    "no length": lambda scene: without_length(USUAL[scene]()),
    "huge names": lambda scene: renamed(USUAL[scene](), HUGE),
    "markup": lambda scene: renamed(USUAL[scene](), MARKUP),
}
