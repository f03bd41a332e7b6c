"""One process of a profiler file as rows of a trace: kernels, syncs, steps, modules.

In: the spans of one process and its GPU. Out: a table in trace columns, without rank, its times not yet shifted.

With kernels, work is what ran on the GPU, and syncs are NCCL's kernels. Without, work is the CPU's outermost operators,
and syncs are the annotated calls. `step` is the profiler's own number of the step in which a kernel was launched; a
kernel whose launch was not recorded has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit.event import Kind
from labkit.kineto.collective import Collective, Groups, collective
from labkit.kineto.events import Args
from labkit.kineto.words import (
    COPY_KERNEL,
    CPU_OP_CATEGORIES,
    GPU_CATEGORIES,
    MODULE,
    PARAM_CALL,
    STEP,
    SYNC_ANNOTATION,
    SYNC_KERNEL,
    op_of,
)

_SEQ_OF_STEP = 1_000_000
"""Numbers kept for the collectives of one step, so that files that begin at different steps still match."""


_WORLD = "world"
"""`axis` of a group of all ranks that has no name."""


_LAUNCH = (pl.col("start_ns").alias("launch_ns"), pl.col("pid").alias("cpu_pid"), pl.col("tid").alias("cpu_tid"))
"""When and on which thread the CPU launched."""

Rows = tuple[pl.DataFrame, pl.DataFrame, list[str]]
"""Work, syncs, notes."""


@dataclass(frozen=True, eq=False)
class Lanes:
    """A process's rows and what has to be said about them."""

    rows: pl.DataFrame
    notes: tuple[str, ...]


def lanes(spans: pl.DataFrame, args: dict[int, Args], groups: Groups) -> Lanes:
    """The rows of one process. `args`: what its events say of collectives, by the spans' column `event`."""
    on_gpu = pl.col("cat").is_in(list(GPU_CATEGORIES))
    cpu, gpu = spans.filter(~on_gpu & ~pl.col("cat").str.starts_with("gpu_")), spans.filter(on_gpu)
    steps = _steps(cpu)
    if gpu.is_empty():
        work, syncs, notes = _cpu_rows(cpu, steps)
    else:
        work, syncs, notes = _gpu_rows(cpu, gpu, steps)
    syncs, more = _named_syncs(syncs, cpu, args, groups)
    rows = [_shaped(steps, Kind.STEP), _shaped(work, Kind.KERNEL), _shaped(syncs, Kind.SYNC), _modules(cpu, steps)]
    return Lanes(pl.concat(rows), (*notes, *more))


_SHAPE = {
    "step": pl.Int32, "layer": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64, "op": pl.String, "axis": pl.String,
    "group": pl.List(pl.Int32), "peer": pl.Int32, "size_bytes": pl.Int64, "dtype": pl.String, "seq": pl.Int64,
}  # fmt: skip


def _shaped(table: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in _SHAPE.items() if name not in table.columns]
    table = table.with_columns(absent).select(list(_SHAPE)).cast(_SHAPE)
    return table.with_columns(pl.lit(str(kind)).alias("kind"))


# ---- steps and modules


def _steps(cpu: pl.DataFrame) -> pl.DataFrame:
    """The profiler's steps; one number several times (seen on several threads) counts once."""
    number = pl.col("name").str.extract(STEP).cast(pl.Int32, strict=False).alias("step")
    found = cpu.filter(pl.col("name").str.starts_with("ProfilerStep")).with_columns(number).drop_nulls("step")
    return found.sort("start_ns").unique("step", keep="first", maintain_order=True).select("step", "start_ns", "end_ns")


def _in_step(table: pl.DataFrame, steps: pl.DataFrame, at: str = "start_ns") -> pl.DataFrame:
    """`step`: the last that had begun at the time in column `at`; the first one for what came before it."""
    if steps.is_empty():
        return table.with_columns(pl.lit(None, dtype=pl.Int32).alias("step"))
    begins = steps["start_ns"].to_numpy()
    at_ns = table[at].fill_null(0).to_numpy()
    index = np.maximum(np.searchsorted(begins, at_ns, side="right") - 1, 0)
    step = steps["step"].gather(index)
    return table.with_columns(pl.when(pl.col(at).is_not_null()).then(step).alias("step"))


def _modules(cpu: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Annotated modules (`nn.Module: Linear_0`) as forwards on the CPU."""
    named = cpu.filter(pl.col("name").str.starts_with(MODULE))
    return _shaped(
        _in_step(named, steps).with_columns(pl.col("name").str.strip_prefix(MODULE).alias("layer")), Kind.FORWARD
    )


# ---- work


def _gpu_rows(cpu: pl.DataFrame, gpu: pl.DataFrame, steps: pl.DataFrame) -> Rows:
    """(compute and copies, syncs, notes), each with the launch it came from."""
    launches = cpu.filter(pl.col("correlation").is_not_null()).select("correlation", *_LAUNCH)
    gpu = gpu.join(launches.unique("correlation", keep="first"), on="correlation", how="left", maintain_order="left")
    gpu = _in_step(gpu, steps, "launch_ns")
    moves = pl.col("cat").replace_strict(GPU_CATEGORIES, return_dtype=pl.String)
    moves = pl.when(moves.is_null() & pl.col("name").str.contains(COPY_KERNEL)).then(
        pl.col("name").str.slice(0, 6).str.to_lowercase()
    ).otherwise(moves)  # fmt: skip
    gpu = gpu.with_columns(moves.alias("op"), pl.col("name").alias("layer"))
    is_sync = pl.col("op").is_null() & pl.col("name").str.contains(SYNC_KERNEL)
    return gpu.filter(~is_sync), gpu.filter(is_sync), _step_notes(gpu, steps)


def _step_notes(gpu: pl.DataFrame, steps: pl.DataFrame) -> list[str]:
    """What breakdowns will leave out."""
    if steps.height < 2:
        return []
    last, lost = steps["step"].max(), gpu["step"].null_count()
    unlaunched = f", nor the {lost:,} kernels whose launch was not recorded" if lost else ""
    return [
        f"{steps.height} profiler steps; breakdowns do not count the last, {last}, in which recording ended{unlaunched}"
    ]


def _cpu_rows(cpu: pl.DataFrame, steps: pl.DataFrame) -> Rows:
    """The outermost operators of each thread as work; the annotated calls as syncs."""
    by_thread = cpu.filter(pl.col("cat").is_in(CPU_OP_CATEGORIES) & (pl.col("name") != PARAM_CALL)).sort(
        "pid", "tid", "start_ns", -pl.col("end_ns"), maintain_order=True
    )
    reached = pl.col("end_ns").cum_max().shift(1).over("pid", "tid")
    outer = by_thread.filter((pl.col("start_ns") >= reached).fill_null(True)).with_columns(
        pl.col("name").alias("layer")
    )
    calls = cpu.filter(pl.col("name").str.contains(SYNC_ANNOTATION))
    if calls.is_empty():
        calls = cpu.filter(pl.col("name") == PARAM_CALL)
    notes = ["no GPU kernels: the CPU's outermost operators are taken as work, and annotated calls as syncs"]
    return _in_step(outer, steps), _in_step(calls.with_columns(*_LAUNCH), steps), notes


# ---- what the syncs were


def _named_syncs(
    syncs: pl.DataFrame, cpu: pl.DataFrame, args: dict[int, Args], groups: Groups
) -> tuple[pl.DataFrame, list[str]]:
    """The syncs with op, group, size, type and number."""
    if syncs.is_empty():
        return syncs.with_columns(pl.lit(None, dtype=pl.String).alias("op")), ["no collectives in the file"]
    rows = _with_calls(syncs, cpu).to_dicts()
    about = [_told(row, args, groups) for row in rows]
    members, notes = [each.group for each in about], []
    if groups.world and not any(members):
        notes.append(f"groups of collectives are not told: taken as all {groups.world_size} ranks")
        members = [groups.world] * len(members)
    ops = [each.op or _op(row) for each, row in zip(about, rows, strict=True)]
    is_world = [group is not None and group == groups.world for group in members]
    names = [each.about or (_WORLD if world else None) for each, world in zip(about, is_world, strict=True)]
    columns = {
        "op": pl.Series(ops, dtype=pl.String),
        "axis": pl.Series(names, dtype=pl.String),
        "group": _lists(members),
        "peer": pl.Series([each.peer for each in about], dtype=pl.Int32),
        "size_bytes": pl.Series([each.size_bytes for each in about], dtype=pl.Int64),
        "dtype": pl.Series([each.dtype for each in about], dtype=pl.String),
        "told": pl.Series([each.seq for each in about], dtype=pl.Int64),
        "members": pl.Series([str(ranks) for ranks in members], dtype=pl.String),
    }
    return _numbered(syncs.with_columns(**columns)), notes


def _lists(groups: list[tuple[int, ...] | None]) -> pl.Series:
    """One list for every row; each different one is built once."""
    kinds = {ranks: i for i, ranks in enumerate(dict.fromkeys(groups))}
    lists = pl.Series([list(ranks) if ranks is not None else None for ranks in kinds], dtype=pl.List(pl.Int32))
    return lists.gather([kinds[ranks] for ranks in groups])


def _with_calls(syncs: pl.DataFrame, cpu: pl.DataFrame) -> pl.DataFrame:
    """For each sync the annotation (`call`) and the recorded call (`call_event`) around its launch, on its thread."""
    by = ["cpu_pid", "cpu_tid"]
    thread = (pl.col("pid").alias("cpu_pid"), pl.col("tid").alias("cpu_tid"))
    marks = cpu.filter(pl.col("name").str.contains(SYNC_ANNOTATION))
    marks = marks.select(*thread, "start_ns", pl.col("end_ns").alias("call_end_ns"), pl.col("name").alias("call"))
    calls = cpu.filter(pl.col("name") == PARAM_CALL)
    calls = calls.select(
        *thread, "start_ns", pl.col("end_ns").alias("param_end_ns"), pl.col("event").alias("call_event")
    )
    found = syncs.with_row_index("order").sort("launch_ns", nulls_last=True)
    for table in (marks, calls):
        found = found.join_asof(
            table.sort("start_ns").rename({"start_ns": "begun_ns"}),
            left_on="launch_ns", right_on="begun_ns", by=by, strategy="backward", check_sortedness=False,
        ).drop("begun_ns")  # fmt: skip
    inside, within = pl.col("call_end_ns") >= pl.col("launch_ns"), pl.col("param_end_ns") >= pl.col("launch_ns")
    found = found.with_columns(
        pl.when(inside).then("call").alias("call"), pl.when(within).then("call_event").alias("call_event")
    )
    return found.sort("order").select("name", "event", "call", "call_event")


def _told(row: dict, args: dict[int, Args], groups: Groups) -> Collective:
    """From the event's own arguments, else from those of the recorded call."""
    told = collective(args.get(row["event"]), groups)
    if told.op is None and told.group is None and row["call_event"] is not None:
        return collective(args.get(row["call_event"]), groups)
    return told


def _op(row: dict) -> str | None:
    """From names: a kernel may hide its op (all_to_all runs as SendRecv), then the annotated call tells it."""
    own, called = op_of(row["name"]), op_of(row["call"] or "")
    return called if called and own in (None, "send_recv") else own or called


def _numbered(syncs: pl.DataFrame) -> pl.DataFrame:
    """`seq`: what the file tells, else the n-th of its op and group within its step."""
    nth = pl.int_range(pl.len(), dtype=pl.Int64).over("step", "op", "members", "peer")
    counted = pl.col("step").fill_null(0).cast(pl.Int64) * _SEQ_OF_STEP + nth
    return syncs.with_columns(pl.coalesce("told", counted).alias("seq"))
