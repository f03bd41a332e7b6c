"""The replicas scene: one weight on every data parallel rank, what each rank learned alone, and what became of it.

In: a `Trace` whose values were captured. Out: a `ReplicaScene` widget; `static/replicas.js` draws it. Every picture is
numbers of the run; only the average in the middle is worked out here from them, and says so.
"""

from typing import Any

import numpy as np
import traitlets

from labkit.analysis.replicas import Replicas, replicas, spread
from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.player import Player

MAX_UNITS = 32
"""Outputs of a layer that can be picked."""

MAX_INPUTS = 1024
"""Numbers in a picture."""

HOW = (
    "Run a Plan with dp 2 or more, at least two steps, and value_limit_bytes above the size of a weight, "
    "such as Plan(dp=4, layers=1, value_limit_bytes=2560)."
)


class ReplicaScene(Player):
    """A column for every rank: its weights, its own gradient, the gradient it uses; between them the average."""

    _esm = widget_module("replicas")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)  # 4-byte floats: weights, own, used (step, rank, unit, input); mean
    weight = traitlets.Unicode().tag(sync=True)
    shape = traitlets.List().tag(sync=True)  # [units, inputs]
    ranks = traitlets.List().tag(sync=True)
    moments = traitlets.List().tag(sync=True)  # of each step: its number, and how far the copies lie apart
    unit = traitlets.Int(0).tag(sync=True)
    missing = traitlets.Unicode().tag(sync=True)


def replica_scene(trace: Trace, *, weight: str | None = None, title: str | None = None) -> ReplicaScene:
    """A player of one weight's copies, by default the first whose values are whole. Raises ValueError for another.

    The weights after a step are those the next one begins with, so the last recorded step is not shown.
    """
    found = {one.name: one for one in replicas(trace) if one.weights.ndim == 4 and len(one.steps) > 1}
    if weight is not None and found and weight not in found:
        raise ValueError(f"no values of {weight!r} are kept on all replicas: there are {', '.join(found)}")
    one = found.get(weight) if weight else next(iter(found.values()), None)
    return ReplicaScene(
        trace.meta,
        heading=trace.title.rpartition(" (")[0] if title is None else title,
        missing="" if one else _missing(trace),
        **(_plain(one) if one else {}),
    )


def _plain(one: Replicas) -> dict[str, Any]:
    shown = [one.weights, one.own_grads[:-1], one.grads[:-1]]
    mean = np.array([one.averaged(k) for k in range(len(one.steps) - 1)])
    weights, own, used, mean = (array[..., :MAX_UNITS, :MAX_INPUTS] for array in (*shown, mean))
    data = {"weights": weights, "own": own, "used": used, "mean": mean}
    return {
        "columns": {name: np.ascontiguousarray(array, "<f4").tobytes() for name, array in data.items()},
        "weight": one.name,
        "shape": list(weights.shape[2:]),
        "ranks": list(one.ranks),
        "moments": [_moment(one, k) for k in range(len(one.steps) - 1)],
        "unit": int(np.ptp(own[0], axis=0).max(axis=1).argmax()),
    }


def _moment(one: Replicas, k: int) -> dict[str, float]:
    spreads = {"own": one.own_grads[k], "used": one.grads[k], "before": one.weights[k], "after": one.weights[k + 1]}
    return {"step": one.steps[k]} | {name: spread(array) for name, array in spreads.items()}


def _missing(trace: Trace) -> str:
    """Why there is nothing to show, and what to set."""
    if trace.events.is_empty():
        return "Nothing to draw: this trace holds no events."
    if trace.meta.mesh.dp < 2:
        return f"This run has one replica, so there are no copies to compare. {HOW}"
    return f"This trace does not hold the values of a weight and its gradients on all replicas for two steps. {HOW}"
