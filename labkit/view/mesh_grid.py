"""The mesh: every rank at its place on the axes pp, dp and tp, and the traffic along them, replayed in time.

In: a `Trace`. Out: a `MeshGrid` widget; `static/mesh_grid.js` draws it from the same columns as the timeline.
"""

from typing import Literal

import traitlets

from labkit.mesh import AXES, Mesh
from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.player import Player
from labkit.view.spans import spans_of
from labkit.view.timeline import rank_labels

Axis = Literal["all", "pp", "dp", "tp"]


class MeshGrid(Player):
    """Ranks on a grid that show what they do; links that light up while something travels on them."""

    _esm = widget_module("mesh_grid")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)
    channels = traitlets.List().tag(sync=True)
    ranks = traitlets.List().tag(sync=True)
    degrees = traitlets.Dict().tag(sync=True)  # {"pp": 2, "dp": 2, "tp": 2}
    step = traitlets.Int(None, allow_none=True).tag(sync=True)
    axis = traitlets.Enum(("all", *AXES), "all").tag(sync=True)
    missing = traitlets.Unicode().tag(sync=True)


def mesh_grid(trace: Trace, *, step: int | None = None, axis: Axis = "all", title: str | None = None) -> MeshGrid:
    """A player of the ranks' grid. `step` opens on one training step, `axis` with that axis' groups marked."""
    steps = trace.events["step"].drop_nulls()
    if step is not None and not (steps == step).any():
        known = f"steps {steps.min()} to {steps.max()}" if len(steps) else "no steps"
        raise ValueError(f"step {step} is not in this trace: it has {known}")
    spans, ranks = spans_of(trace), rank_labels(trace)
    mesh = trace.meta.mesh if trace.meta.mesh.num_ranks == len(ranks) else Mesh(dp=max(1, len(ranks)))
    return MeshGrid(
        trace.meta,
        heading=trace.title.rpartition(" (")[0] if title is None else title,
        columns=spans.columns,
        channels=spans.channels,
        ranks=ranks,
        degrees={name: getattr(mesh, name) for name in AXES},
        step=step,
        axis=axis,
        missing="" if spans.count else "Nothing to draw: this trace holds no events.",
    )
