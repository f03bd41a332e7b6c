"""The memory lanes: what every rank holds over time, as parameters, gradients, optimizer state and activations.

In: a `Trace` whose events carry the four byte columns. Out: a `MemoryLanes` widget; `static/memory_lanes.js` draws it.
"""

from typing import Any

import numpy as np
import polars as pl
import traitlets

from labkit import analysis
from labkit.analysis.memory import HELD
from labkit.trace import Trace
from labkit.view.esm import join_modules, stylesheet
from labkit.view.player import Player
from labkit.view.theme import HELD_LOOKS, looks_for_js
from labkit.view.timeline import rank_labels

HOW = "The Plan's `record` must hold 'memory', as it does by default."


class MemoryLanes(Player):
    """One lane for every rank: a pile of four bands, the peak, and a limit where one is given."""

    _esm = join_modules(
        "geometry",
        "clock",
        "markup",
        "fills",
        "linking",
        "scene",
        "quantities",
        "memory_lanes_geometry",
        "memory_lanes",
    )
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)  # t, row and the four of `analysis.memory.HELD`, by rank, then time
    bands = traitlets.List().tag(sync=True)
    ranks = traitlets.List().tag(sync=True)
    counts = traitlets.List().tag(sync=True)  # rows of each rank
    steps = traitlets.List().tag(sync=True)  # [step, from, to]
    window = traitlets.List().tag(sync=True)
    limit_bytes = traitlets.Float(None, allow_none=True).tag(sync=True)
    step = traitlets.Int(None, allow_none=True).tag(sync=True)
    missing = traitlets.Unicode().tag(sync=True)


def memory_lanes(
    trace: Trace, *, limit_bytes: int | None = None, step: int | None = None, title: str | None = None
) -> MemoryLanes:
    """A player of what ranks hold. `limit_bytes`: of one device, drawn as a line; `step` opens on one step."""
    heading = trace.title.rpartition(" (")[0] if title is None else title
    lanes = analysis.memory_lanes(trace)
    if lanes.is_empty():
        why = "holds no events" if trace.events.is_empty() else "does not say what ranks held in memory"
        return MemoryLanes(trace.meta, heading=heading, missing=f"Nothing to draw: this trace {why}. {HOW}")
    steps = _steps(trace)
    if step is not None and step not in [number for number, *_ in steps]:
        raise ValueError(f"step {step} is not in this trace: it has steps {[number for number, *_ in steps]}")
    ranks = rank_labels(trace)
    lanes = _with_rows(trace, lanes)
    counts = dict(lanes.group_by("rank").len().iter_rows())
    return MemoryLanes(
        trace.meta,
        heading=heading,
        columns=_columns(lanes),
        bands=looks_for_js(HELD_LOOKS),
        ranks=ranks,
        counts=[counts.get(one["rank"], 0) for one in ranks],
        steps=steps,
        window=[float(trace.events["start_ns"].min()), float(max(trace.events["end_ns"].max(), lanes["t_ns"].max()))],
        limit_bytes=limit_bytes,
        step=step,
    )


def _with_rows(trace: Trace, lanes: pl.DataFrame) -> pl.DataFrame:
    """The lanes with the place in trace.events of the event whose end told each of them."""
    told = trace.events.with_row_index("row").filter(pl.any_horizontal(pl.col(name).is_not_null() for name in HELD))
    ends = told.group_by("rank", pl.col("end_ns").alias("t_ns")).agg(pl.col("row").last())
    return lanes.join(ends, on=["rank", "t_ns"], how="left").sort("rank", "t_ns")


def _columns(lanes: pl.DataFrame) -> dict[str, bytes]:
    columns = {name: np.ascontiguousarray(lanes[name].to_numpy(), "<f8").tobytes() for name in HELD}
    columns["t"] = np.ascontiguousarray(lanes["t_ns"].to_numpy(), "<f8").tobytes()
    return columns | {"row": np.ascontiguousarray(lanes["row"].to_numpy(), "<u4").tobytes()}


def _steps(trace: Trace) -> list[list[Any]]:
    """[step, first start, last end] of every step, in order."""
    table = trace.events.filter(pl.col("step").is_not_null()).group_by("step")
    table = table.agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("step")
    return [list(row) for row in table.iter_rows()]
