"""The matrix shard: one weight, cut by rows or columns over ranks, and how their partial results make the whole one.

In: a `Trace` whose values were captured. Out: a `MatrixShard` widget; `static/matrix_shard.js` draws it. Every cell is
a number of the run, or one computed from the run's numbers where the widget says so.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import traitlets

from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.player import Player
from labkit.view.shards import Shard, shards_of

MAX_ACROSS = 64
"""Cells shown of any side; of a bigger matrix the first ones, of a cut side the first ones of every part."""

MAX_SAMPLES = 12
MAX_WEIGHTS = 24
HOW = (
    'Run a Plan with tp 2 or more and value_limit_bytes set, such as Plan(tp=2, width=16, value_limit_bytes="256KiB").'
)


class MatrixShard(Player):
    """A weight that falls apart into its parts, products that grow, results that are joined and compared."""

    _esm = widget_module("matrix_shard")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)  # matrices as 4-byte floats, row by row
    shards = traitlets.List().tag(sync=True)  # {.., matrices: {name: [key in columns, num_rows, num_columns]}}
    missing = traitlets.Unicode().tag(sync=True)


def matrix_shard(
    trace: Trace, *, step: int | None = None, serial: Trace | None = None, title: str | None = None
) -> MatrixShard:
    """A player of the trace's cut weights. `serial`: a capture of `plan.serial()` with values, to compare with."""
    shards = shards_of(trace, step=step, serial=serial)[:MAX_WEIGHTS]
    columns: dict[str, bytes] = {}
    return MatrixShard(
        trace.meta,
        heading=trace.title.rpartition(" (")[0] if title is None else title,
        shards=[_plain(shard, number, columns) for number, shard in enumerate(shards)],
        columns=columns,
        missing="" if shards else _missing(trace),
    )


def _plain(shard: Shard, number: int, columns: dict[str, bytes]) -> dict[str, Any]:
    """A shard as plain data; its matrices, cut to what is shown, go to `columns`."""
    n, across = len(shard.ranks), max(1, MAX_ACROSS // len(shard.ranks))
    out_each, in_each = (across, MAX_ACROSS) if shard.cut == "rows" else (MAX_ACROSS, across)
    matrices: dict[str, np.ndarray] = {}
    for k in range(n):
        matrices[f"weight{k}"] = shard.weights[k][:out_each, :in_each]
        matrices[f"input{k}"] = shard.inputs[k][:MAX_SAMPLES, :in_each]
        matrices[f"partial{k}"] = shard.partials[k][:MAX_SAMPLES, :out_each]
    shown = _shown_outputs(shard, out_each)
    for name in ("combined", "whole", "difference"):
        matrices[name] = getattr(shard, name)[:MAX_SAMPLES, shown]
    places = {}
    for name, matrix in matrices.items():
        columns[f"{number}.{name}"] = np.ascontiguousarray(matrix, "<f4").tobytes()
        places[name] = [f"{number}.{name}", *matrix.shape]
    sizes = (shard.weights[0].shape, shard.inputs[0].shape, shard.combined.shape)
    is_cropped = matrices["weight0"].shape != sizes[0] or matrices["input0"].shape != sizes[1]
    return {
        "name": shard.name,
        "cut": shard.cut,
        "ranks": list(shard.ranks),
        "matrices": places,
        "weight_shape": [sum(w.shape[0] for w in shard.weights), sizes[0][1]]
        if shard.cut == "rows"
        else [sizes[0][0], sum(w.shape[1] for w in shard.weights)],
        "part_shapes": {
            "weight": [list(weight.shape) for weight in shard.weights],
            "input": [list(taken.shape) for taken in shard.inputs],
        },
        "num_samples": sizes[1][0],
        "is_cropped": is_cropped,
        "has_relu": shard.has_relu,
        "partials_from": shard.partials_from,
        "whole_from": shard.whole_from,
        "max_difference": shard.max_difference,
        "largest": float(np.abs(shard.whole).max(initial=0)),
        "rows": list(shard.rows),
        "feeds": shard.feeds,
    }


def _shown_outputs(shard: Shard, out_each: int) -> np.ndarray:
    """Which columns of the whole result are shown: those of the shown parts."""
    if shard.cut == "columns":
        return np.arange(min(out_each, shard.whole.shape[1]))
    starts = np.cumsum([0, *(weight.shape[0] for weight in shard.weights)])
    return np.concatenate([np.arange(start, min(start + out_each, stop)) for start, stop in pairwise(starts)])


def _missing(trace: Trace) -> str:
    """Why there is nothing to show, and what to set."""
    if trace.events.is_empty():
        return "Nothing to draw: this trace holds no events."
    if trace.meta.mesh.tp < 2:
        return f"No weight of this run is cut: it has no tensor parallel ranks. {HOW}"
    if trace.of("value").is_empty():
        return f"This trace holds no values of weights, inputs and outputs. {HOW}"
    return (
        "No weight's captured input, parts and output fit together: values may be over the Plan's value_limit_bytes, "
        f"or, with sequence parallelism, ranks keep only slices of the output. {HOW}"
    )
