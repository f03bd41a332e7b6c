"""Traces for the pictures' tests, written by hand rules: a pipeline, a data-parallel run, and the odd ones."""

import numpy as np
import polars as pl

from labkit.mesh import Mesh
from labkit.trace import SCHEMA, Meta, Trace, from_events

MS = 1_000_000
TWO_EACH = Mesh(pp=2, dp=2, tp=2)


def one_f_one_b(num_stages: int = 4, num_microbatches: int = 8, num_steps: int = 1, layers_per_stage: int = 2) -> Trace:
    """A 1F1B pipeline: forward 20 ms, backward 40 ms, a message 2 ms; every grain of event."""
    rows, origin = [], 0
    for step in range(num_steps):
        made = _pipeline_step(num_stages, num_microbatches, layers_per_stage, step, origin)
        rows += made
        origin = max(row["end_ns"] for row in made) + 4 * MS
    plan = {"task": "digits", "pp": num_stages, "dp": 1, "tp": 1, "schedule": "1f1b"}
    losses = tuple(2.3 * 0.8**step for step in range(num_steps))
    meta = Meta("paced", plan=plan, num_ranks=num_stages, losses=losses, notes=("Rank 3 was late by up to 1.2 ms.",))
    return from_events(rows, meta)


def _pipeline_step(num_stages: int, num_microbatches: int, layers: int, step: int, origin: int) -> list[dict]:
    orders = []
    for stage in range(num_stages):
        warm = min(num_stages - stage - 1, num_microbatches)
        steady = [(kind, m + warm * (kind == "F")) for m in range(num_microbatches - warm) for kind in "FB"]
        last = [("B", m) for m in range(num_microbatches - warm, num_microbatches)]
        orders.append([("F", m) for m in range(warm)] + steady + last)
    free, at, ends, rows = [origin] * num_stages, [0] * num_stages, {}, []
    while any(at[stage] < len(orders[stage]) for stage in range(num_stages)):
        for stage in range(num_stages):
            if at[stage] == len(orders[stage]):
                continue
            kind, m = orders[stage][at[stage]]
            source = stage - 1 if kind == "F" else stage + 1
            crosses = 0 <= source < num_stages
            if crosses and (kind, source, m) not in ends:
                continue
            ready = ends[kind, source, m] + 2 * MS if crosses else 0
            if crosses:
                rows += _message(
                    kind, source, stage, m, step, ends[kind, source, m], ready, free[stage], num_microbatches
                )
            start = max(free[stage], ready)
            length = (20 if kind == "F" else 40) * MS
            rows += _stage_work(kind, stage, m, step, start, length, layers)
            if stage == 0 and kind == "F":
                samples = list(range(m * 8, m * 8 + 8))
                common = dict(rank=0, step=step, microbatch=m, stage=0)
                rows.append(dict(kind="load", start_ns=start, end_ns=start + MS, samples=samples, **common))
            ends[kind, stage, m] = free[stage] = start + length
            at[stage] += 1
    finish = max(free)
    for stage in range(num_stages):
        common = dict(rank=stage, step=step)
        rows.append(dict(kind="optimizer", start_ns=free[stage], end_ns=free[stage] + 6 * MS, **common))
        rows.append(dict(kind="step", start_ns=origin, end_ns=finish + 6 * MS, **common))
    return rows


def _message(kind, source, target, m, step, sent, ready, free, num_microbatches) -> list[dict]:
    common = dict(axis="pp", group=[min(source, target), max(source, target)], size_bytes=64 * 1024, dtype="float32")
    common |= dict(seq=step * num_microbatches + m, microbatch=m, step=step)
    rows = [
        dict(rank=source, kind="sync", op="send", peer=target, start_ns=sent, end_ns=ready, **common),
        dict(rank=target, kind="sync", op="recv", peer=source, start_ns=min(free, ready - MS), end_ns=ready, **common),
    ]
    if ready > free:
        rows.append(dict(rank=target, kind="wait", op="recv", peer=source, start_ns=free, end_ns=ready, **common))
    return rows


def _stage_work(kind: str, stage: int, m: int, step: int, start: int, length: int, layers: int) -> list[dict]:
    name = "forward" if kind == "F" else "backward"
    common = dict(rank=stage, stage=stage, microbatch=m, step=step)
    rows = [dict(kind=f"stage_{name}", start_ns=start, end_ns=start + length, cpu_ns=length // 3, **common)]
    part = length // layers
    for k in range(layers):
        number = stage * layers + (k if kind == "F" else layers - 1 - k)
        begin = start + k * part
        rows.append(dict(kind=name, layer=f"blocks.{number}", start_ns=begin, end_ns=begin + part, **common))
    return rows


def data_parallel(num_ranks: int = 4, num_layers: int = 6, num_steps: int = 2) -> Trace:
    """Data parallel: backward layer by layer, each bucket's all_reduce overlapped with the rest, a wait at the end."""
    rows, origin = [], 0
    for step in range(num_steps):
        rows += _data_parallel_step(num_ranks, num_layers, step, origin)
        origin = max(row["end_ns"] for row in rows) + MS
    plan = {"task": "digits", "pp": 1, "dp": num_ranks, "tp": 1, "time_scale": 100}
    return from_events(rows, Meta("paced", plan=plan, num_ranks=num_ranks, losses=(2.3, 1.9)))


def _data_parallel_step(num_ranks: int, num_layers: int, step: int, origin: int) -> list[dict]:
    rows, issues = [], {}
    group = list(range(num_ranks))
    for rank in group:
        t, common = origin, dict(rank=rank, step=step, stage=0, microbatch=0)
        rows.append(
            dict(kind="load", start_ns=t, end_ns=t + 2 * MS, samples=list(range(rank * 16, rank * 16 + 16)), **common)
        )
        t += 2 * MS
        pace = 5 * MS + rank * MS // 4
        rows.append(dict(kind="stage_forward", start_ns=t, end_ns=t + num_layers * pace, **common))
        for k in range(num_layers):
            rows.append(dict(kind="forward", layer=f"layers.{k}", start_ns=t, end_ns=t + pace, **common))
            t += pace
        rows.append(dict(kind="loss", layer="loss", start_ns=t, end_ns=t + MS, **common))
        t += MS
        rows.append(dict(kind="stage_backward", start_ns=t, end_ns=t + num_layers * 2 * pace, **common))
        for k in reversed(range(num_layers)):
            rows.append(dict(kind="backward", layer=f"layers.{k}", start_ns=t, end_ns=t + 2 * pace, **common))
            t += 2 * pace
            if k % 2 == 0:
                issues[rank, k // 2] = t
        issues[rank, "done"] = t
    finish = origin
    for bucket in reversed(range(num_layers // 2)):
        finish = max(finish, max(issues[rank, bucket] for rank in group)) + 14 * MS
        for rank in group:
            common = dict(
                rank=rank, step=step, op="all_reduce", axis="dp", group=group, size_bytes=4_200_000, dtype="float32"
            )
            common["seq"] = step * num_layers // 2 + num_layers // 2 - 1 - bucket
            rows.append(dict(kind="sync", start_ns=issues[rank, bucket], end_ns=finish, **common))
            if bucket == 0:
                rows.append(dict(kind="wait", start_ns=issues[rank, "done"], end_ns=finish, **common))
    for rank in group:
        rows.append(dict(kind="optimizer", rank=rank, step=step, start_ns=finish, end_ns=finish + 5 * MS))
        rows.append(dict(kind="step", rank=rank, step=step, start_ns=origin, end_ns=finish + 5 * MS))
    return rows


def mixed(mesh: Mesh = TWO_EACH) -> Trace:
    """Eight ranks on three axes, tensor-parallel waits inside the stages' spans, split backward."""
    rows = []
    for rank in range(mesh.num_ranks):
        at = mesh.coordinate(rank)
        t, common = at["pp"] * 30 * MS, dict(rank=rank, stage=at["pp"], step=0)
        for m in range(3):
            for kind, length in (("stage_forward", 24), ("stage_backward_input", 22), ("stage_backward_weight", 18)):
                end = t + length * MS
                rows.append(dict(kind=kind, microbatch=m, start_ns=t, end_ns=end, **common))
                sync = dict(
                    op="all_reduce", axis="tp", group=list(mesh.group("tp", rank)), size_bytes=32768, dtype="float32"
                )
                sync["seq"] = len([row for row in rows if row["rank"] == rank and row["kind"] == "sync"])
                begin = t + (9 + 2 * at["tp"]) * MS
                rows.append(dict(kind="sync", start_ns=begin, end_ns=t + 15 * MS, **sync, **common))
                rows.append(dict(kind="wait", start_ns=begin, end_ns=t + 15 * MS, **sync, **common))
                t = end
        rows.append(dict(kind="zero_grad", start_ns=t, end_ns=t + 3 * MS, **common))
    plan = {"task": "digits", "pp": mesh.pp, "dp": mesh.dp, "tp": mesh.tp, "schedule": "zb-h1"}
    return from_events(rows, Meta("measured", plan=plan, num_ranks=mesh.num_ranks, dropped_events=12))


def dense(num_events: int, num_ranks: int = 8) -> Trace:
    """Very many short spans: computations and waits in turn."""
    each, rng = num_events // num_ranks, np.random.default_rng(0)
    lengths = rng.integers(5_000, 60_000, (num_ranks, each))
    ends = lengths.cumsum(axis=1)
    kinds = np.array(["stage_forward", "stage_backward", "wait"])[rng.integers(0, 3, (num_ranks, each))]
    rank = np.repeat(np.arange(num_ranks), each)
    frame = pl.DataFrame(
        dict(rank=rank, kind=kinds.ravel(), start_ns=(ends - lengths).ravel(), end_ns=ends.ravel())
    ).with_columns(step=pl.lit(0), microbatch=pl.int_range(pl.len()) % 8)
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in SCHEMA.items() if name not in frame.columns]
    events = frame.with_columns(missing).select(list(SCHEMA)).cast(SCHEMA).sort("start_ns", "rank")
    return Trace(events, Meta("measured", num_ranks=num_ranks))


def empty() -> Trace:
    return from_events([], Meta("measured"))


def single() -> Trace:
    """One event, of no length, with markup in its names."""
    name = "<img src=x onerror=alert(1)>"
    row = dict(rank=0, kind="forward", layer=name, start_ns=0, end_ns=0, microbatch=0)
    return from_events([row], Meta("measured", num_ranks=1, notes=("<b>not bold</b>",)))
