"""A trace as columns that a player can draw from: typed arrays and tables of names.

In: a `Trace`. Out: `Spans`, which goes to the browser once, as binary buffers. Pure: no widget, no drawing.

Spans are ordered by rank, then start, then longest first, so a span that contains others comes before them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from labkit.event import NONE, STAGE_KINDS, Kind
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

_CHANNEL = ("op", "axis", "group_text", "peer", "dtype")
"""What a sync goes through. Few combinations occur, so each span carries the number of its own."""

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
    kinds = [*_GRAINS]
    frame = trace.events.with_row_index("row").with_columns(pl.col("kind").cast(pl.String))
    frame = frame.filter(pl.col("kind").is_in(kinds)).sort(
        "rank", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True
    )
    frame = frame.with_columns(
        start=pl.col("start_ns"),
        duration=(pl.col("end_ns") - pl.col("start_ns")).clip(0),
        grain=pl.col("kind").replace_strict(_GRAINS, return_dtype=pl.Int32),
        look=pl.col("kind").replace_strict(_LOOK_CODES, default=0, return_dtype=pl.Int32),
        group_text=pl.col("group").cast(pl.List(pl.String)).list.join(","),
        num_samples=pl.col("samples").list.len(),
    )
    frame, layers = _coded(frame, "layer", ("layer",))
    frame, channels = _coded(frame, "channel", _CHANNEL, only=pl.col("op").is_not_null())
    frame = frame.with_columns(link=_links(frame))
    return Spans(frame.height, _columns(frame), [name for (name,) in layers], [_channel(*row) for row in channels])


def _coded(
    frame: pl.DataFrame, code: str, names: tuple[str, ...], *, only: pl.Expr | None = None
) -> tuple[pl.DataFrame, list[tuple]]:
    """The frame with a column `code` that numbers the combinations of `names`, and those combinations in order."""
    only = pl.col(names[0]).is_not_null() if only is None else only
    table = frame.filter(only).select(names).unique(maintain_order=True)
    numbered = table.with_row_index("_code")
    frame = frame.join(numbered, on=list(names), how="left", nulls_equal=True, maintain_order="left")
    return frame.with_columns(pl.when(only).then(pl.col("_code")).alias(code)).drop("_code"), table.rows()


def _links(frame: pl.DataFrame) -> pl.Series:
    """One number for each communication; null where a span belongs to none.

    A message is known by its axis, its direction and its place among the messages of that pair; a collective by its
    group and its place among the group's operations.
    """
    sends, receives = pl.col("op") == "send", pl.col("op") == "recv"
    peer, rank = pl.col("peer").cast(pl.String), pl.col("rank").cast(pl.String)
    way = pl.when(sends).then(rank + ">" + peer).when(receives).then(peer + ">" + rank).otherwise(pl.col("group_text"))
    key = pl.concat_str([pl.col("axis").fill_null(""), way, pl.col("seq").cast(pl.String)], separator=" ")
    return frame.select(key.rank("dense").cast(pl.Int64) - 1).to_series()


def _channel(op: str, axis: str | None, group: str | None, peer: int | None, dtype: str | None) -> dict[str, Any]:
    ranks = [int(rank) for rank in group.split(",")] if group else []
    return {"op": op, "axis": axis or "", "group": ranks, "peer": peer, "dtype": dtype or ""}


def _columns(frame: pl.DataFrame) -> dict[str, bytes]:
    """Every column that says something, as bytes; NONE stands for null."""
    columns = {
        name: np.ascontiguousarray(frame[name].fill_null(NONE).to_numpy(), dtype).tobytes()
        for name, dtype in _DTYPES.items()
        if name in _ALWAYS or frame[name].null_count() < frame.height
    }
    if "num_samples" in columns:
        flat = frame["samples"].drop_nulls().explode().drop_nulls()
        columns["samples"] = np.ascontiguousarray(flat.to_numpy(), "<i4").tobytes()
    return columns
