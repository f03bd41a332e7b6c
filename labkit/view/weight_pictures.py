"""Weights as pictures: the first layer of a digits network, step by step, and what the network says about an image.

In: a `Trace` whose weights and gradients were captured. Out: a `WeightPictures` widget; `static/weight_pictures.js`
draws it. Weights and gradients are the run's own numbers; probabilities are worked out from them
(`analysis.perceptron`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import traitlets

from labkit.analysis.perceptron import Perceptron, activations, captured, perceptrons, probabilities
from labkit.digits import digits
from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.player import Player

MAX_UNITS = 16
"""Pictures shown; of a wider layer the first ones."""


class WeightPictures(Player):
    """A picture for every unit of the first layer; images go forward, gradients come back, pictures change."""

    _esm = widget_module("weight_pictures")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)  # 4-byte floats; see `_columns` for shapes
    units = traitlets.List(traitlets.Unicode()).tag(sync=True)  # name of every picture
    is_output = traitlets.Bool().tag(sync=True)  # the pictured units are the digits themselves
    samples = traitlets.List().tag(sync=True)  # [dataset index, its digit] of every image
    losses = traitlets.List().tag(sync=True)  # of every step's own batch
    batch = traitlets.Int(0).tag(sync=True)  # images of a step
    lr = traitlets.Float(None, allow_none=True).tag(sync=True)  # where update = weight - lr x gradient
    num_parameters = traitlets.Int(0).tag(sync=True)
    missing = traitlets.Unicode().tag(sync=True)


def weight_pictures(trace: Trace, *, samples: Sequence[int] | None = None, title: str | None = None) -> WeightPictures:
    """A player of the first layer's weights. `samples`: images to follow; default: one of each digit of step 0."""
    heading = trace.title.rpartition(" (")[0] if title is None else title
    try:
        networks = perceptrons(trace)
        if len(captured(trace, "grad")) != len(networks):
            raise ValueError("this trace ends before the gradients of its last step: run it again")
    except ValueError as error:
        return WeightPictures(trace.meta, heading=heading, missing=f"Nothing to draw: {error}.")
    samples = first_of_each_digit(trace) if samples is None else list(samples)
    plan, labels = trace.meta.plan or {}, digits()[1]
    is_output = len(trace.meta.layers) == 1
    num_units = min(MAX_UNITS, len(networks[0].biases[0]))
    return WeightPictures(
        trace.meta,
        heading=heading,
        columns=_columns(trace, networks, samples, num_units),
        units=[f"digit {unit}" if is_output else f"unit {unit}" for unit in range(num_units)],
        is_output=is_output,
        samples=[[sample, int(labels[sample])] for sample in samples],
        losses=list(trace.meta.losses[: len(networks)]),
        batch=int(plan.get("global_batch", 0)),
        lr=plan.get("lr") if plan.get("optimizer") == "sgd" else None,
        num_parameters=networks[0].num_parameters,
    )


def first_of_each_digit(trace: Trace) -> list[int]:
    """Dataset indices of up to ten images that step 0 trained on, one of each digit, in order of the digits."""
    loads = trace.of("load").filter((pl.col("step") == 0) & (pl.col("samples").list.len() > 0))
    labels = digits()[1]
    seen = [sample for batch in loads.sort("rank", "microbatch")["samples"] for sample in batch]
    first = {int(labels[sample]): sample for sample in reversed(seen or range(len(labels)))}
    return [first[digit] for digit in sorted(first)]


def _columns(trace: Trace, networks: list[Perceptron], samples: list[int], num_units: int) -> dict[str, bytes]:
    """For every step: weights and gradients (units, 64), activations (samples, units), probabilities (samples, 10);
    the last step's gradient is that of an update which no forward saw. images: (samples, 64)."""
    images = digits()[0][samples].astype(np.float64)
    name = f"{trace.meta.layers[0]}.linear.weight"
    grads = [kept[name] for kept in captured(trace, "grad")]
    found: dict[str, Any] = {
        "weights": [network.weights[0][:num_units] for network in networks],
        "grads": [grad[:num_units] for grad in grads],
        "activations": [activations(network, images)[0][:, :num_units] for network in networks],
        "probabilities": [probabilities(network, images) for network in networks],
        "images": images,
    }
    return {key: np.ascontiguousarray(value, "<f4").tobytes() for key, value in found.items()}
