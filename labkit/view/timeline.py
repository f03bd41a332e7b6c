"""The timeline: what every rank did, when, and who waited for whom.

In: a `Trace`, from whatever source. Out: a `Timeline` widget; `static/timeline.js` draws it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import traitlets

from labkit import analysis
from labkit.event import STAGE_KINDS
from labkit.mesh import Mesh
from labkit.trace import Meta, Trace, from_events
from labkit.view.answers import gap_causes, path_segments
from labkit.view.esm import stylesheet, widget_module
from labkit.view.held import held_columns
from labkit.view.player import Player, reader_notes
from labkit.view.spans import spans_of
from labkit.view.theme import HELD_LOOKS, looks_for_js

if TYPE_CHECKING:  # the view knows plans only by what they are asked
    from labkit.plan import Plan

Detail = Literal["auto", "stage", "layer"]

MAX_HELD = 200_000
"""Changes of what ranks hold that go to the page; a trace with more shows no memory here (`memory_lanes` does)."""


class Timeline(Player):
    """One row for every rank: its computation, its waits and, below, its communication and its memory.

    >>> widget = timeline(trace)
    >>> widget.observe(lambda change: print(trace.events.row(change["new"], named=True)), "selected")
    """

    _esm = widget_module("timeline")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)  # see spans.py and held.py
    layers = traitlets.List().tag(sync=True)
    channels = traitlets.List().tag(sync=True)
    ranks = traitlets.List().tag(sync=True)
    bands = traitlets.List().tag(sync=True)
    counts = traitlets.List().tag(sync=True)  # rows of each rank in the memory columns
    step = traitlets.Int(None, allow_none=True).tag(sync=True)
    detail = traitlets.Enum(("auto", "stage", "layer"), "auto").tag(sync=True)
    memory = traitlets.Bool(False).tag(sync=True)
    path = traitlets.Bool(False).tag(sync=True)  # whether the critical path is shown
    paths = traitlets.Dict().tag(sync=True)  # by step, "" for all: see answers.py
    causes = traitlets.Dict().tag(sync=True)
    is_live = traitlets.Bool(False).tag(sync=True)  # the run goes on

    def __init__(self, trace: Trace, **traits: Any) -> None:
        super().__init__(trace.meta, **traits)
        self._trace = trace
        self.on_msg(self._on_message)

    def follow(self, trace: Trace) -> None:
        """Show how far a run under way has come: for `run(plan, on_trace=widget.follow)`. Any thread may call it."""
        steps = trace.events["step"].drop_nulls()
        note = f"The run goes on: steps {steps.min()} to {steps.max()} are shown, the latest." if len(steps) else ""
        self._set(trace, is_live=True, notes=[note] if note else [])

    def show(self, trace: Trace) -> None:
        """Show this trace from now on: the run's own, once it is over."""
        self._set(trace, is_live=False, notes=reader_notes(trace.meta))

    def _set(self, trace: Trace, **traits: Any) -> None:
        with self.hold_sync():  # one message, so that the page never sees half of it
            self._trace = trace
            self.set_trait("paths", {})
            self.set_trait("causes", {})
            for name, value in (traits | _drawn(trace)).items():
                self.set_trait(name, value)

    def find_path(self, step: int | None = None) -> None:
        """Work out the critical path of a step (None: of all), for the player to show."""
        self.paths = self.paths | {"" if step is None else str(step): path_segments(self._trace, step)}

    def find_causes(self) -> None:
        """Work out why ranks stood still, for the player to tell."""
        self.causes = gap_causes(self._trace)

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        if message.get("do") == "path":
            self.find_path(message.get("step"))
        elif message.get("do") == "causes":
            self.find_causes()


def timeline(
    trace: Trace,
    *,
    step: int | None = None,
    detail: Detail = "auto",
    memory: bool = False,
    path: bool = False,
    title: str | None = None,
) -> Timeline:
    """A player for a trace. `step` opens on one training step; readers can pick others in the player itself.

    detail: "auto" shows layers where there is room. memory: what ranks hold below each row. path: the critical path.
    """
    steps = trace.events["step"].drop_nulls()
    if step is not None and not (steps == step).any():
        known = f"steps {steps.min()} to {steps.max()}" if len(steps) else "no steps"
        raise ValueError(f"step {step} is not in this trace: it has {known}")
    widget = Timeline(
        trace,
        heading=trace.title.rpartition(" (")[0] if title is None else title,  # the badge says where times come from
        step=step,
        detail=detail,
        memory=memory,
        path=path,
        **_drawn(trace),
    )
    if path:
        widget.find_path(step)
    return widget


def live_timeline(plan: Plan, *, title: str | None = None, **options: Any) -> Timeline:
    """A timeline that is empty until a run feeds it; `options` as of `timeline`.

    >>> live = live_timeline(plan)  # show it
    >>> live.show(run(plan, on_trace=live.follow))
    """
    nothing = from_events([], Meta(plan.source, plan=plan.to_dict(), num_ranks=plan.num_ranks))
    widget = timeline(nothing, title=title, **options)
    widget.is_live = True
    return widget


def _drawn(trace: Trace) -> dict[str, Any]:
    """What a trace is drawn from, as the widget's traits."""
    spans, ranks, lanes = spans_of(trace), rows_of_ranks(trace), analysis.memory_lanes(trace)
    traits = dict(columns=spans.columns, layers=spans.layers, channels=spans.channels, ranks=ranks)
    if lanes.is_empty() or lanes.height > MAX_HELD:
        return traits
    held = held_columns(trace, lanes, ranks)
    return traits | dict(columns=spans.columns | held.columns, counts=held.counts, bands=looks_for_js(HELD_LOOKS))


def rows_of_ranks(trace: Trace) -> list[dict[str, Any]]:
    """The labels of the ranks that get a row: of an imported job only those whose file was given, else all."""
    labels = rank_labels(trace)
    if trace.meta.source != "imported":
        return labels
    here = set(trace.events["rank"])
    return [label for label in labels if label["rank"] in here]


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
        parts.insert(0, f"stage{'s' * (len(held) > 1)} {_listed(held)}")
    return " · ".join(parts)


def _listed(numbers: list[int]) -> str:
    """ "0, 3", and of more than four the first two and the last: "0, 2, … 48"."""
    texts = [str(number) for number in numbers]
    return ", ".join(texts) if len(texts) <= 4 else f"{texts[0]}, {texts[1]}, … {texts[-1]}"


def _stages_of_ranks(trace: Trace) -> dict[int, list[int]]:
    """The stages each rank worked on, in order."""
    stages = trace.of(*STAGE_KINDS).group_by("rank").agg(pl.col("stage").drop_nulls().unique().sort())
    return dict(stages.iter_rows())
