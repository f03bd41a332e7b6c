"""Loss paths: where the weights of several runs went, on a map of the loss around them.

In: `Trace`s of the digits network whose weights were captured. Out: a `LossPaths` widget; `static/loss_paths.js` draws
it. The map is a plane through the space of all weights (`analysis.landscape`); every height on it is the loss over all
1,797 images, worked out for the weights at that very place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import traitlets

from labkit.analysis.landscape import Descent, descent_on, losses_on, plane_through
from labkit.analysis.perceptron import perceptrons
from labkit.digits import digits
from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.player import Player

GRID = (25, 17)
"""Places across and up at which the loss is computed; between them the picture interpolates."""

MARGIN = 0.2
"""How far the map goes on beyond the paths, as a share of their extent."""


class LossPaths(Player):
    """A map of the loss, and a ball for every run that moves with each update."""

    _esm = widget_module("loss_paths")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)  # 4-byte floats: map, and place, loss, accuracy of every path
    paths = traitlets.List().tag(sync=True)  # {name, batch}
    grid = traitlets.List().tag(sync=True)  # [number across, number up]
    extent = traitlets.List().tag(sync=True)  # [left, right, bottom, top]
    share = traitlets.Float(0.0).tag(sync=True)  # of the movement that lies in the plane
    num_images = traitlets.Int(0).tag(sync=True)  # that every loss is the mean of
    missing = traitlets.Unicode().tag(sync=True)


def loss_paths(runs: Mapping[str, Trace], *, title: str = "Paths over the loss") -> LossPaths:
    """A player of several runs of one network, by name. Raises ValueError without runs."""
    if not runs:
        raise ValueError("loss_paths compares runs: give at least one, by name, e.g. {'batch 32': trace}")
    meta = next(iter(runs.values())).with_meta(notes=()).meta  # of times, which this picture does not show
    images, labels = digits()
    images = images.astype(np.float64)
    try:
        networks = {name: perceptrons(trace) for name, trace in runs.items()}
        plane = plane_through(list(networks.values()))
    except ValueError as error:
        return LossPaths(meta, heading=title, missing=f"Nothing to draw: {error}.")
    paths = {name: descent_on(plane, found, images, labels) for name, found in networks.items()}
    extent = _extent(list(paths.values()))
    across, up = np.linspace(*extent[:2], GRID[0]), np.linspace(*extent[2:], GRID[1])
    columns = {"map": losses_on(plane, across, up, images, labels)}
    for number, path in enumerate(paths.values()):
        columns |= {f"place{number}": path.places, f"loss{number}": path.losses, f"accuracy{number}": path.accuracies}
    return LossPaths(
        meta,
        heading=title,
        columns={name: np.ascontiguousarray(values, "<f4").tobytes() for name, values in columns.items()},
        paths=[{"name": name, "batch": int((trace.meta.plan or {})["global_batch"])} for name, trace in runs.items()],
        grid=list(GRID),
        extent=extent,
        share=plane.share,
        num_images=len(labels),
    )


def _extent(paths: list[Descent]) -> list[float]:
    """[left, right, bottom, top] of a map that holds all paths, and some land around them."""
    places = np.concatenate([path.places for path in paths])
    low, high = places.min(axis=0), places.max(axis=0)
    margin = MARGIN * (high - low)
    (left, bottom), (right, top) = low - margin, high + margin
    return [float(one) for one in (left, right, bottom, top)]
