"""The timeline: what every rank did, when, and who waited for whom.

In: a `Trace`, from whatever source. Out: a `Timeline` widget; `static/timeline.js` draws it.
"""

from typing import Any, Literal

import polars as pl
import traitlets

from labkit.event import STAGE_KINDS
from labkit.mesh import Mesh
from labkit.trace import Trace
from labkit.view.esm import join_modules, stylesheet
from labkit.view.player import Player
from labkit.view.spans import spans_of

Detail = Literal["stage", "layer"]


class Timeline(Player):
    """One row for every rank: its computation, its waits and, below, its communication.

    >>> widget = timeline(trace)
    >>> widget.observe(lambda change: print(trace.events.row(change["new"], named=True)), "selected")
    """

    _esm = join_modules("geometry", "clock", "markup", "wording", "fills", "linking", "paint", "timeline")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)
    layers = traitlets.List().tag(sync=True)
    channels = traitlets.List().tag(sync=True)
    ranks = traitlets.List().tag(sync=True)
    step = traitlets.Int(None, allow_none=True).tag(sync=True)
    detail = traitlets.Enum(("stage", "layer"), "stage").tag(sync=True)


def timeline(trace: Trace, *, step: int | None = None, detail: Detail = "stage", title: str | None = None) -> Timeline:
    """A player for a trace. `step` opens on one training step; readers can pick others in the player itself."""
    steps = trace.events["step"].drop_nulls()
    if step is not None and not (steps == step).any():
        known = f"steps {steps.min()} to {steps.max()}" if len(steps) else "no steps"
        raise ValueError(f"step {step} is not in this trace: it has {known}")
    spans = spans_of(trace)
    return Timeline(
        trace.meta,
        heading=trace.title.rpartition(" (")[0] if title is None else title,  # the badge says where times come from
        columns=spans.columns,
        layers=spans.layers,
        channels=spans.channels,
        ranks=rank_labels(trace),
        step=step,
        detail=detail,
    )


def rank_labels(trace: Trace) -> list[dict[str, Any]]:
    """For every rank its number and where it sits: {"rank": 5, "place": "stage 1 · dp 0 · tp 1"}.

    Axes of degree 1 say nothing and are left out. An interleaved schedule gives a rank several stages: "stages 0, 7".
    """
    mesh = trace.meta.mesh
    seen = trace.events["rank"].drop_nulls().max()
    num_ranks = max(trace.meta.num_ranks, 0 if seen is None else int(seen) + 1)
    has_places = trace.meta.plan is not None and mesh.num_ranks == num_ranks
    stages = _stages_of_ranks(trace)
    return [
        {"rank": rank, "place": _place(mesh, rank, stages.get(rank, [])) if has_places else ""}
        for rank in range(num_ranks)
    ]


def _place(mesh: Mesh, rank: int, stages: list[int]) -> str:
    parts = [f"{axis} {at}" for axis, at in mesh.coordinate(rank).items() if axis != "pp" and getattr(mesh, axis) > 1]
    if mesh.pp > 1:
        held = stages or [mesh.coordinate(rank)["pp"]]
        parts.insert(0, f"stage{'s' * (len(held) > 1)} {', '.join(map(str, held))}")
    return " · ".join(parts)


def _stages_of_ranks(trace: Trace) -> dict[int, list[int]]:
    """The stages each rank worked on, in order."""
    stages = trace.of(*STAGE_KINDS).group_by("rank").agg(pl.col("stage").drop_nulls().unique().sort())
    return dict(stages.iter_rows())
