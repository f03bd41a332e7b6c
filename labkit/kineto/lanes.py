"""One process of a profiler file as rows of a trace: kernels, syncs, steps, modules.

In: the spans of one process and its GPU. Out: a table in trace columns, without rank, its times not yet shifted.

With kernels, work is what ran on the GPU, and syncs are NCCL's kernels. Without, work is the CPU's outermost operators,
and syncs are the annotated calls. `step` is the profiler's own number of the step in which a kernel was launched; a
kernel whose launch was not recorded has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from labkit.event import Kind
from labkit.kineto.collective import Collective, Groups, collective
from labkit.kineto.events import Args
from labkit.kineto.words import (
    COPY_KERNEL,
    CPU_OP_CATEGORIES,
    GPU_CATEGORIES,
    MARK,
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


_THREAD = (pl.col("pid").alias("cpu_pid"), pl.col("tid").alias("cpu_tid"))

_LAUNCH = (pl.col("start_ns").alias("launch_ns"), *_THREAD)
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
    on_cpu = ~on_gpu & ~pl.col("cat").str.starts_with("gpu_")
    gpu = spans.filter(on_gpu).sort("start_ns", maintain_order=True)
    marks = spans.filter(pl.col("name").str.contains(MARK)).filter(on_cpu).sort("start_ns", maintain_order=True)
    steps = _steps(marks)
    if gpu.is_empty():
        work, syncs, notes = _cpu_rows(spans.filter(on_cpu), marks, steps)
    else:
        launches = spans.filter(on_cpu & pl.col("correlation").is_in(gpu["correlation"].implode()))
        work, syncs, notes = _gpu_rows(launches, gpu, steps)
    syncs, more = _named_syncs(syncs, marks, args, groups)
    rows = [_shaped(steps, Kind.STEP), _shaped(work, Kind.KERNEL), _shaped(syncs, Kind.SYNC), _modules(marks, steps)]
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


def _steps(marks: pl.DataFrame) -> pl.DataFrame:
    """The profiler's steps; one number several times (seen on several threads) counts once."""
    number = pl.col("name").str.extract(STEP).cast(pl.Int32, strict=False).alias("step")
    found = marks.filter(pl.col("name").str.starts_with("ProfilerStep")).with_columns(number).drop_nulls("step")
    return found.unique("step", keep="first", maintain_order=True).select("step", "start_ns", "end_ns")


def _in_step(table: pl.DataFrame, steps: pl.DataFrame, at: str = "start_ns") -> pl.DataFrame:
    """`step`: the last that had begun at the time in column `at`; the first one for what came before it."""
    if steps.is_empty():
        return table.with_columns(pl.lit(None, dtype=pl.Int32).alias("step"))
    begun = steps["start_ns"].search_sorted(table[at].fill_null(0), side="right").cast(pl.Int64)
    step = steps["step"].gather((begun - 1).clip(0))
    return table.with_columns(pl.when(pl.col(at).is_not_null()).then(step).alias("step"))


def _modules(marks: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Annotated modules (`nn.Module: Linear_0`) as forwards on the CPU."""
    named = marks.filter(pl.col("name").str.starts_with(MODULE))
    return _shaped(
        _in_step(named, steps).with_columns(pl.col("name").str.strip_prefix(MODULE).alias("layer")), Kind.FORWARD
    )


# ---- work


def _gpu_rows(launches: pl.DataFrame, gpu: pl.DataFrame, steps: pl.DataFrame) -> Rows:
    """(compute and copies, syncs, notes), each with the launch it came from: the first of its number."""
    launches = launches.sort("start_ns", maintain_order=True).filter(pl.col("correlation").is_first_distinct())
    launches = launches.select("correlation", *_LAUNCH)
    gpu = _in_step(gpu.join(launches, on="correlation", how="left", maintain_order="left"), steps, "launch_ns")
    moves = pl.col("cat").replace_strict(GPU_CATEGORIES, return_dtype=pl.String)
    moves = pl.when(moves.is_null() & pl.col("name").str.contains(COPY_KERNEL)).then(
        pl.col("name").str.slice(0, 6).str.to_lowercase()
    ).otherwise(moves)  # fmt: skip
    gpu = gpu.with_columns(moves.alias("op"), pl.col("name").alias("layer"))
    is_sync = gpu.select(pl.col("op").is_null() & pl.col("name").str.contains(SYNC_KERNEL)).to_series()
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


def _cpu_rows(cpu: pl.DataFrame, marks: pl.DataFrame, steps: pl.DataFrame) -> Rows:
    """The outermost operators of each thread as work; the annotated calls as syncs."""
    by_thread = cpu.filter(pl.col("cat").is_in(CPU_OP_CATEGORIES) & (pl.col("name") != PARAM_CALL)).sort(
        "pid", "tid", "start_ns", -pl.col("end_ns"), maintain_order=True
    )
    reached = pl.col("end_ns").cum_max().shift(1).over("pid", "tid")
    outer = by_thread.filter((pl.col("start_ns") >= reached).fill_null(True)).with_columns(
        pl.col("name").alias("layer")
    )
    calls = marks.filter(pl.col("name").str.contains(SYNC_ANNOTATION))
    if calls.is_empty():
        calls = marks.filter(pl.col("name") == PARAM_CALL)
    notes = ["no GPU kernels: the CPU's outermost operators are taken as work, and annotated calls as syncs"]
    return _in_step(outer, steps), _in_step(calls.with_columns(*_LAUNCH), steps), notes


# ---- what the syncs were


def _named_syncs(
    syncs: pl.DataFrame, marks: pl.DataFrame, args: dict[int, Args], groups: Groups
) -> tuple[pl.DataFrame, list[str]]:
    """The syncs with op, group, size, type and number."""
    if syncs.is_empty():
        return syncs.with_columns(pl.lit(None, dtype=pl.String).alias("op")), ["no collectives in the file"]
    calls = _with_calls(syncs, marks)
    about = [_told(*events, args, groups) for events in calls.select("event", "call_event").iter_rows()]
    members, world, notes = [each.group for each in about], groups.world, []
    if world and not any(members):
        notes.append(f"groups of collectives are not told: taken as all {groups.world_size} ranks")
        members = [world] * len(members)
    names = calls.select("name", "call").iter_rows()
    is_world = [group is not None and group == world for group in members]
    columns = {
        "op": pl.Series([a.op or _op(*said) for a, said in zip(about, names, strict=True)], dtype=pl.String),
        "axis": pl.Series(
            [a.about or (_WORLD if world else None) for a, world in zip(about, is_world, strict=True)], dtype=pl.String
        ),
        "peer": pl.Series([a.peer for a in about], dtype=pl.Int32),
        "size_bytes": pl.Series([a.size_bytes for a in about], dtype=pl.Int64),
        "dtype": pl.Series([a.dtype for a in about], dtype=pl.String),
        "told": pl.Series([a.seq for a in about], dtype=pl.Int64),
    }
    return _numbered(syncs.with_columns(*_lists(members), **columns)), notes


def _lists(groups: list[tuple[int, ...] | None]) -> tuple[pl.Series, pl.Series]:
    """(`group`, a list for every row; `members`, a number that stands for it). Each different list is built once."""
    kinds = {ranks: i for i, ranks in enumerate(dict.fromkeys(groups))}
    lists = pl.Series("group", [None if ranks is None else list(ranks) for ranks in kinds], dtype=pl.List(pl.Int32))
    members = pl.Series("members", [kinds[ranks] for ranks in groups], dtype=pl.UInt32)
    return lists.gather(members), members


def _with_calls(syncs: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """For each sync the annotation (`call`) and the recorded call (`call_event`) around its launch, on its thread."""
    annotated = marks.filter(pl.col("name").str.contains(SYNC_ANNOTATION))
    recorded = marks.filter(pl.col("name") == PARAM_CALL)
    call, call_event = _around(syncs, annotated, "name"), _around(syncs, recorded, "event")
    return syncs.select("name", "event", call.alias("call"), call_event.alias("call_event"))


def _around(syncs: pl.DataFrame, marks: pl.DataFrame, column: str) -> pl.Series:
    """`column` of the last mark that began before each launch, on its thread, if it lasted until then."""
    marks = marks.select(*_THREAD, "start_ns", "end_ns", pl.col(column).alias("found"))
    found = syncs.select("launch_ns", "cpu_pid", "cpu_tid").with_row_index("order").sort("launch_ns", nulls_last=True)
    found = found.join_asof(
        marks, left_on="launch_ns", right_on="start_ns", by=["cpu_pid", "cpu_tid"], strategy="backward",
        check_sortedness=False,
    )  # fmt: skip
    found = found.select("order", pl.when(pl.col("end_ns") >= pl.col("launch_ns")).then("found"))
    return found.sort("order")["found"]


def _told(event: int, call_event: int | None, args: dict[int, Args], groups: Groups) -> Collective:
    """From the event's own arguments, else from those of the recorded call."""
    told = collective(args.get(event), groups)
    if told.op is None and told.group is None and call_event is not None:
        return collective(args.get(call_event), groups)
    return told


def _op(name: str, call: str | None) -> str | None:
    """From names: a kernel may hide its op (all_to_all runs as SendRecv), then the annotated call tells it."""
    own, called = op_of(name), op_of(call or "")
    return called if called and own in (None, "send_recv") else own or called


def _numbered(syncs: pl.DataFrame) -> pl.DataFrame:
    """`seq`: what the file tells, else the n-th of its op and group within its step."""
    nth = pl.int_range(pl.len(), dtype=pl.Int64).over("step", "op", "members", "peer")
    counted = pl.col("step").fill_null(0).cast(pl.Int64) * _SEQ_OF_STEP + nth
    return syncs.with_columns(pl.coalesce("told", counted).alias("seq"))
