"""The memory lanes: what every rank holds over time, as parameters, gradients, optimizer state and activations.

In: a `Trace` whose events carry the four byte columns. Out: a `MemoryLanes` widget; `static/memory_lanes.js` draws it.
"""

from typing import Any

import polars as pl
import traitlets

from labkit import analysis
from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.held import held_columns
from labkit.view.player import Player
from labkit.view.theme import HELD_LOOKS, looks_for_js
from labkit.view.timeline import rank_labels

HOW = "The Plan's `record` must hold 'memory', as it does by default."


class MemoryLanes(Player):
    """One lane for every rank: a pile of four bands, the peak, and a limit where one is given."""

    _esm = widget_module("memory_lanes")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)  # see held.py
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
    held = held_columns(trace, lanes, ranks)
    return MemoryLanes(
        trace.meta,
        heading=heading,
        columns=held.columns,
        bands=looks_for_js(HELD_LOOKS),
        ranks=ranks,
        counts=held.counts,
        steps=steps,
        window=[float(trace.events["start_ns"].min()), float(max(trace.events["end_ns"].max(), lanes["t_ns"].max()))],
        limit_bytes=limit_bytes,
        step=step,
    )


def _steps(trace: Trace) -> list[list[Any]]:
    """[step, first start, last end] of every step, in order."""
    table = trace.events.filter(pl.col("step").is_not_null()).group_by("step")
    table = table.agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("step")
    return [list(row) for row in table.iter_rows()]
