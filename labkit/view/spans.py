"""A trace as columns that a player can draw from: typed arrays and tables of names.

In: a `Trace`. Out: `Spans`, which goes to the browser once, as binary buffers. Pure: no widget, no drawing.

Spans are ordered by rank, then start, then longest first, so a span that contains others comes before them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from labkit.event import KINDS, NONE, STAGE_KINDS, Kind
from labkit.trace import Trace
from labkit.view.theme import LOOK_OF_KIND, LOOKS

STEP, STAGE, LAYER, EITHER, SYNC = range(5)
"""Grains: where a span is drawn. A step is a frame; a stage or a layer only in that detail; a load, an optimizer or a
wait in either; a sync in its own lane."""

MESSAGE_OPS = ("send", "recv")

_LOOK_CODES = {str(kind): [look.name for look in LOOKS].index(name) for kind, name in LOOK_OF_KIND.items()}
_GRAINS = {
    str(kind): SYNC if kind is Kind.SYNC else STAGE if kind in STAGE_KINDS else LAYER for kind in LOOK_OF_KIND
} | {
    str(kind): EITHER for kind in (Kind.LOAD, Kind.ZERO_GRAD, Kind.LOSS, Kind.OPTIMIZER, Kind.WAIT)
}  # a loss is a layer, but one that no stage event need contain
_GRAINS[str(Kind.STEP)] = STEP

_READ = (
    "rank", "kind", "step", "microbatch", "stage", "layer", "start_ns", "end_ns", "cpu_ns", "late_ns", "op", "axis",
    "group", "peer", "size_bytes", "dtype", "seq", "samples",
)  # fmt: skip

_DTYPES = {
    "start": "<f8",
    "duration": "<f8",  # doubles hold whole ns exactly: spans that touch must not seem to overlap
    "rank": "<u2",
    "grain": "u1",
    "look": "u1",
    "row": "<u4",
    "step": "<i4",
    "microbatch": "<i4",
    "stage": "<i2",
    "layer": "<i4",
    "channel": "<i4",
    "link": "<i4",
    "seq": "<i4",
    "size_bytes": "<f8",
    "cpu_ns": "<f8",
    "late_ns": "<f8",
    "num_samples": "<i4",
}
_ALWAYS = ("start", "duration", "rank", "grain", "look", "row")


@dataclass(frozen=True)
class Spans:
    """Columns by name (little-endian bytes; a column that holds only nulls is left out) and the tables they point to.

    `link` numbers communications: the spans of one collective, or of one message, on all its ranks, have the same.
    """

    count: int
    columns: dict[str, bytes]
    layers: list[str]
    channels: list[dict[str, Any]]  # op, axis, group, peer, dtype


def spans_of(trace: Trace) -> Spans:
    """The drawable events of a trace. `row` is the event's place in `trace.events`."""
    frame = _numbers(trace).sort("rank", "start", "end_ns", descending=[False, False, True], maintain_order=True)
    frame, layers = _coded(frame, "layer")
    frame, channels = _coded(frame, "channel")
    link = pl.col("link").rank("dense").cast(pl.Int64) - 1
    frame = frame.with_columns(duration=(pl.col("end_ns") - pl.col("start")).clip(0), link=link)
    names = trace.events[layers]["layer"].to_list()
    ways = trace.events[channels].select("op", "axis", "group", "peer", "dtype").rows()
    return Spans(frame.height, _columns(frame, trace.events["samples"]), names, [_channel(*way) for way in ways])


def _numbers(trace: Trace) -> pl.DataFrame:
    """The drawable events as numbers alone: sorting a million texts and lists takes ten seconds, a million numbers one.

    layer, channel, link: a hash, equal for equal ones. A message is known by its axis, its direction and its place
    among the messages of that pair; a collective by its group and its place among the group's operations.
    """
    events = trace.events.select(*_READ, row=pl.int_range(pl.len(), dtype=pl.UInt32))
    drawn = pl.Series([str(kind) in _GRAINS for kind in KINDS])
    kind = pl.col("kind").to_physical()
    events = events.filter(pl.lit(drawn).gather(kind))
    sends, receives, is_sync = pl.col("op") == "send", pl.col("op") == "recv", pl.col("op").is_not_null()
    group = pl.col("group").hash()
    ends = pl.when(sends).then(pl.struct("rank", "peer").hash())
    way = ends.when(receives).then(pl.struct(pl.col("peer").alias("rank"), pl.col("rank").alias("peer")).hash())
    way = way.when(pl.col("group").is_not_null()).then(group)
    place = pl.struct("axis", way.alias("way"), "seq").hash()
    return events.select(
        "rank", "row", "step", "microbatch", "stage", "seq", "size_bytes", "cpu_ns", "late_ns", "end_ns",
        start=pl.col("start_ns"),
        grain=pl.lit(pl.Series(_of_kinds(_GRAINS), dtype=pl.UInt8)).gather(kind),
        look=pl.lit(pl.Series(_of_kinds(_LOOK_CODES), dtype=pl.UInt8)).gather(kind),
        num_samples=pl.col("samples").list.len(),
        layer=pl.when(pl.col("layer").is_not_null()).then(pl.col("layer").hash()),
        channel=pl.when(is_sync).then(pl.struct("op", "axis", group.alias("group"), "peer", "dtype").hash()),
        link=pl.when(pl.col("seq").is_not_null() & way.is_not_null()).then(place),
    )  # fmt: skip


def _of_kinds(codes: dict[str, int]) -> list[int]:
    """A code for every kind, by its place in KINDS; 0 for kinds that are not drawn."""
    return [codes.get(str(kind), 0) for kind in KINDS]


def _coded(frame: pl.DataFrame, name: str) -> tuple[pl.DataFrame, list[int]]:
    """The frame with hashes numbered in the order in which they come, and in which row of the trace each came first."""
    firsts = frame.select(name, "row").drop_nulls().unique(name, keep="first", maintain_order=True)
    numbered = firsts.select(name, pl.int_range(pl.len(), dtype=pl.Int32).alias("code"))
    codes = frame.select(name).join(numbered, on=name, how="left", maintain_order="left")["code"]
    return frame.with_columns(codes.alias(name)), firsts["row"].to_list()


def _channel(op: str, axis: str | None, group: list[int] | None, peer: int | None, dtype: str | None) -> dict[str, Any]:
    return {"op": op, "axis": axis or "", "group": group or [], "peer": peer, "dtype": dtype or ""}


def _columns(frame: pl.DataFrame, samples: pl.Series) -> dict[str, bytes]:
    """Every column that says something, as bytes; NONE stands for null. `samples` of every row of the trace."""
    columns = {
        name: np.ascontiguousarray(frame[name].fill_null(NONE).to_numpy(), dtype).tobytes()
        for name, dtype in _DTYPES.items()
        if name in _ALWAYS or frame[name].null_count() < frame.height
    }
    if "num_samples" in columns:
        loads = frame.filter(pl.col("num_samples").is_not_null())["row"]
        flat = samples.gather(loads).explode().drop_nulls()
        columns["samples"] = np.ascontiguousarray(flat.to_numpy(), "<i4").tobytes()
    return columns
