"""A trace as one JSON file in the Chrome trace format, which ui.perfetto.dev and chrome://tracing open.

In: a `Trace`. Out: every rank a process, its work, copies and syncs on lanes of their own; arrows from send to recv,
and in each collective from the rank that came last to those that waited for it; bytes held as counters.

Format: "Trace Event Format" (Chromium). Times are us; ns are kept as thousandths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from labkit.analysis import memory_lanes
from labkit.analysis.activity import COPIES
from labkit.analysis.matching import collective_calls, message_ends
from labkit.analysis.memory import HELD
from labkit.event import Kind
from labkit.formats.target import whole_file
from labkit.formats.tracks import nested_tracks
from labkit.trace import SOURCES, Trace

_CHUNK = 20_000
_TIDS_OF_RANK = 1000  # viewers want thread numbers that differ between processes
_FACTS = ("step", "microbatch", "stage", "layer", "op", "axis", "group", "peer", "size_bytes", "dtype", "seq", "cpu_ns")
_FACTS += ("late_ns", "samples", "shape")


class _Args(msgspec.Struct, omit_defaults=True, gc=False):
    """What a click on a span tells, in the words of `event.COLUMNS`."""

    step: int | None = None
    microbatch: int | None = None
    stage: int | None = None
    layer: str | None = None
    op: str | None = None
    axis: str | None = None
    group: list[int] | None = None
    peer: int | None = None
    size_bytes: int | None = None
    dtype: str | None = None
    seq: int | None = None
    cpu_ns: int | None = None
    late_ns: int | None = None
    samples: list[int] | None = None
    shape: list[int] | None = None


class _Entry(msgspec.Struct, omit_defaults=True, gc=False):
    """One entry of `traceEvents`."""

    ph: str
    pid: int
    name: str
    tid: int | None = None
    cat: str | None = None
    ts: float | None = None
    dur: float | None = None
    id: int | None = None
    bp: str | None = None
    args: Any = None


def write_perfetto(trace: Trace, path: Path) -> Path:
    """Write `path` (.json or .json.gz)."""
    slices = _slices(trace)
    with whole_file(path) as file:
        about = json.dumps(_about(trace), ensure_ascii=False)
        file.write(f'{{"displayTimeUnit": "ms", "otherData": {about}, "traceEvents": [\n'.encode())
        is_first = True
        for chunk in _chunks(_entries(trace, slices)):
            file.write(b"" if is_first else b",\n")
            file.write(b",\n".join(map(_ENCODER.encode, chunk)))
            is_first = False
        file.write(b"\n]}\n")
    return path


_ENCODER = msgspec.json.Encoder()


def _about(trace: Trace) -> dict[str, Any]:
    source = trace.meta.source
    return {
        "what": trace.title,
        "times": f"{source}: {SOURCES[source]}",
        "notes": list(trace.meta.notes),
        "plan": trace.meta.plan,
    }


def _chunks(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    chunk: list[_Entry] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _entries(trace: Trace, slices: pl.DataFrame) -> Iterator[_Entry]:
    yield from _names(trace, slices)
    columns = ["rank", "tid", "kind", "name", "start_ns", "end_ns", *_FACTS]
    for rank, tid, kind, name, start_ns, end_ns, *facts in slices.select(columns).iter_rows():
        ts, dur = start_ns / 1000, (end_ns - start_ns) / 1000
        yield _Entry("X", rank + 1, name, tid, kind, ts, dur, args=_Args(*facts))
    yield from _arrows(trace, slices)
    yield from _counters(trace)


# ---- spans


def _slices(trace: Trace) -> pl.DataFrame:
    """The drawable events with `name`, `lane` and `tid`, containing spans before what they contain."""
    kind = pl.col("kind").cast(pl.String)
    events = trace.events.with_row_index("event").filter(kind != str(Kind.VALUE)).with_columns(kind)
    has_kernels = (events["kind"] == str(Kind.KERNEL)).any()
    events = events.with_columns(
        _lane(has_kernels).alias("lane"), _name().alias("name"), pl.max_horizontal("start_ns", "end_ns").alias("end_ns")
    ).sort("rank", "lane", "start_ns", "end_ns", descending=[False, False, False, True], maintain_order=True)
    tracks = [
        nested_tracks(rows.select("start_ns", "end_ns").iter_rows())
        for rows in events.partition_by("rank", "lane", maintain_order=True)
    ]
    track = pl.Series("track", [number for numbers in tracks for number in numbers], dtype=pl.Int64)
    return _with_tids(events.with_columns(track))


def _lane(has_kernels: bool) -> pl.Expr:
    """Where a span is drawn. Beside kernels, a profiler's forwards are modules on the CPU."""
    kind, sync = pl.col("kind"), pl.concat_str(pl.lit("sync "), pl.col("axis").fill_null("")).str.strip_chars()
    copies = (kind == str(Kind.KERNEL)) & pl.col("op").is_in(COPIES).fill_null(False)
    lane = pl.when(kind == str(Kind.SYNC)).then(sync).when(copies).then(pl.lit("copies"))
    lane = lane.when(kind == str(Kind.KERNEL)).then(pl.lit("kernels"))
    modules = lane.when((kind == str(Kind.FORWARD)) & has_kernels).then(pl.lit("modules"))
    return modules.otherwise(pl.lit("compute"))


def _name() -> pl.Expr:
    """ "forward 3" of a stage and microbatch, "forward blocks.2" of a layer, "all_reduce", "wait recv", "step 0"."""
    kind, op = pl.col("kind"), pl.col("op").fill_null("sync")
    number = pl.col("microbatch").cast(pl.String)
    stage = pl.concat_str(kind.str.strip_prefix("stage_"), number, separator=" ", ignore_nulls=True)
    step = pl.concat_str(kind, pl.col("step").cast(pl.String), separator=" ", ignore_nulls=True)
    layer = pl.when(kind == "loss").then(kind).otherwise(pl.concat_str(kind, "layer", separator=" ", ignore_nulls=True))
    return (
        pl.when(kind == str(Kind.SYNC)).then(op)
        .when(kind == str(Kind.WAIT)).then(pl.concat_str(pl.lit("wait "), op))
        .when(kind == str(Kind.STEP)).then(step)
        .when(kind == str(Kind.KERNEL)).then(pl.coalesce("layer", "op", "kind"))
        .when(kind.str.starts_with("stage_")).then(stage)
        .otherwise(layer)
    )  # fmt: skip


_LANE_ORDER = {"compute": 0, "kernels": 1, "copies": 2}
_LAST_LANES = {"modules": 9}


def _with_tids(slices: pl.DataFrame) -> pl.DataFrame:
    """`tid`: one for each track of each lane of each rank; lanes in the order in which they are to be shown."""
    order = pl.col("lane").replace_strict(_LANE_ORDER | _LAST_LANES, default=5, return_dtype=pl.Int32)
    tracks = slices.select("rank", "lane", "track").unique().sort("rank", order, "lane", "track")
    nth = pl.int_range(pl.len()).over("rank")
    tracks = tracks.with_columns(((pl.col("rank") + 1).cast(pl.Int64) * _TIDS_OF_RANK + nth).alias("tid"))
    return slices.join(tracks, on=["rank", "lane", "track"], how="left", maintain_order="left")


def _names(trace: Trace, slices: pl.DataFrame) -> Iterator[_Entry]:
    """Names of ranks and lanes, and their order."""
    mesh, source = trace.meta.mesh, trace.meta.source
    for rank in slices["rank"].unique().sort():
        at = mesh.coordinate(rank) if trace.meta.plan and rank < mesh.num_ranks else {}
        place = ", ".join(f"{axis} {number}" for axis, number in at.items() if getattr(mesh, axis) > 1)
        name = f"rank {rank}{f' · {place}' if place else ''} ({source})"
        yield _Entry("M", rank + 1, "process_name", args={"name": name})
        yield _Entry("M", rank + 1, "process_sort_index", args={"sort_index": rank})
    for rank, lane, track, tid in slices.select("rank", "lane", "track", "tid").unique().sort("tid").iter_rows():
        name = lane if track == 0 else f"{lane}, {track + 1}"
        yield _Entry("M", rank + 1, "thread_name", tid, args={"name": name})
        yield _Entry("M", rank + 1, "thread_sort_index", tid, args={"sort_index": tid})


# ---- arrows and counters


def _arrows(trace: Trace, slices: pl.DataFrame) -> Iterator[_Entry]:
    """An arrow for each message, and in each collective from the last rank to each other."""
    ends = pl.concat([_message_arrows(trace), _collective_arrows(trace)])
    syncs = slices.filter(pl.col("kind") == str(Kind.SYNC)).select(pl.col("event").cast(pl.Int64), "tid")
    for end in ("from", "to"):
        ends = ends.join(syncs, left_on=f"{end}_event", right_on="event", maintain_order="left").rename(
            {"tid": f"{end}_tid"}
        )
    columns = ["name", "cat", "from_rank", "from_tid", "from_ns", "to_rank", "to_tid", "to_ns"]
    for number, row in enumerate(ends.select(columns).iter_rows(), start=1):
        name, cat, from_rank, from_tid, from_ns, to_rank, to_tid, to_ns = row
        yield _Entry("s", from_rank + 1, name, from_tid, cat, from_ns / 1000, id=number)
        yield _Entry("f", to_rank + 1, name, to_tid, cat, to_ns / 1000, id=number, bp="e")


_ARROW = {"name": pl.String, "cat": pl.String} | {
    f"{end}_{what}": pl.Int64 for end in ("from", "to") for what in ("rank", "event", "ns")
}


def _arrow(end: str, at: pl.Expr) -> Sequence[pl.Expr]:
    return pl.col("rank").alias(f"{end}_rank"), pl.col("event").alias(f"{end}_event"), at.alias(f"{end}_ns")


_LAST_NS = pl.max_horizontal(pl.col("start_ns"), pl.col("end_ns") - 1)
"""The last moment inside a span: an arrow that ends later would miss it."""


def _message_arrows(trace: Trace) -> pl.DataFrame:
    ends, key = message_ends(trace), ["axis", "sender", "receiver", "seq", "nth"]
    sends = ends.filter(pl.col("op") == "send").select(*key, *_arrow("from", pl.col("start_ns")))
    receives = ends.filter(pl.col("op") == "recv").select(*key, *_arrow("to", _LAST_NS))
    pairs = sends.join(receives, on=key, nulls_equal=True)
    name = pl.format("{} to {}", "sender", "receiver")
    return pairs.select(name.alias("name"), pl.lit("message").alias("cat"), *list(_ARROW)[2:]).cast(_ARROW)


def _collective_arrows(trace: Trace) -> pl.DataFrame:
    calls = collective_calls(trace).sort("call", "start_ns", "rank")
    last = calls.group_by("call", maintain_order=True).last().select("call", *_arrow("from", pl.col("start_ns")))
    others = calls.select("call", "op", *_arrow("to", _LAST_NS)).join(last, on="call")
    others = others.filter(pl.col("to_rank") != pl.col("from_rank"))
    name = pl.format("{}: the last to come", "op")
    return others.select(name.alias("name"), pl.lit("collective").alias("cat"), *list(_ARROW)[2:]).cast(_ARROW)


def _counters(trace: Trace) -> Iterator[_Entry]:
    names = [name.removesuffix("_bytes") for name in HELD]
    for rank, t_ns, *held in memory_lanes(trace).select("rank", "t_ns", *HELD).iter_rows():
        yield _Entry("C", rank + 1, "bytes held", ts=t_ns / 1000, args=dict(zip(names, held, strict=True)))
