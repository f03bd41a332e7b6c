"""What ranks hold over time, as columns that a player can draw from.

In: a `Trace` whose events carry the four byte columns. Out: `Held`, which goes to the browser as binary buffers. Pure.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from labkit.analysis.memory import HELD
from labkit.trace import Trace


@dataclass(frozen=True)
class Held:
    """Columns held_t (ns), held_row (the event that told it) and those of `HELD` (bytes), by rank, then time."""

    columns: dict[str, bytes]
    counts: list[int]  # rows of each rank


def held_columns(trace: Trace, lanes: pl.DataFrame, ranks: list[dict[str, Any]]) -> Held:
    """The table of `analysis.memory_lanes(trace)` as columns; `ranks`: the rank labels of the picture, in order."""
    lanes = _with_rows(trace, lanes)
    counts = dict(lanes.group_by("rank").len().iter_rows())
    columns = {name: np.ascontiguousarray(lanes[name].to_numpy(), "<f8").tobytes() for name in HELD}
    columns["held_t"] = np.ascontiguousarray(lanes["t_ns"].to_numpy(), "<f8").tobytes()
    columns["held_row"] = np.ascontiguousarray(lanes["row"].to_numpy(), "<u4").tobytes()
    return Held(columns, [counts.get(one["rank"], 0) for one in ranks])


def _with_rows(trace: Trace, lanes: pl.DataFrame) -> pl.DataFrame:
    """The lanes with the place in trace.events of the event whose end told each of them."""
    told = trace.events.with_row_index("row").filter(pl.any_horizontal(pl.col(name).is_not_null() for name in HELD))
    ends = told.group_by("rank", pl.col("end_ns").alias("t_ns")).agg(pl.col("row").last())
    return lanes.join(ends, on=["rank", "t_ns"], how="left").sort("rank", "t_ns")
