"""Why ranks stand still: each rank's causes as a bar, its longest gaps as sentences that lead to their moment.

In: a `Trace`, through `labkit.explain`. Out: a `Findings` widget; `static/findings.js` lays it out.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import anywidget
import polars as pl
import traitlets

from labkit import analysis, explain
from labkit.analysis import Cause
from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.theme import look

MAX_RANKS = 16
MAX_SENTENCES = 3  # for each rank

LOOK_OF_CAUSE = {
    "work": "forward",
    Cause.WARM_UP: "load",
    Cause.DRAIN: "zero_grad",
    Cause.SLOW_STAGE: "backward_weight",
    Cause.ORDER: "loss",
    Cause.LATE_P2P: "recompute",
    Cause.STRAGGLER: "wait",
    Cause.BANDWIDTH: "sync",
    Cause.PARTNER: "kernel",
    Cause.HOST: "idle",
    Cause.CORES: "optimizer",
}
"""A cause looks the same on every rank and in every trace."""


class Findings(anywidget.AnyWidget):
    """Causes and sentences by rank. A click on a sentence calls `on_show(start_ns)`."""

    _esm = widget_module("markup", "findings")
    _css = stylesheet("player", "findings")

    ranks = traitlets.List().tag(sync=True)  # {rank, work, causes: [[cause, percent]], gaps: [[sentence, start_ns]]}
    causes = traitlets.Dict().tag(sync=True)  # every cause found, and what it means
    looks = traitlets.Dict().tag(sync=True)  # how work and every cause found look
    note = traitlets.Unicode().tag(sync=True)
    can_show = traitlets.Bool(False).tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


def findings(trace: Trace, *, step: int | None = None, on_show: Callable[[int], None] | None = None) -> Findings:
    """Why the ranks of a trace stood still. `step`: sentences of that step only; causes are those of all."""
    table, causes = explain.explain(trace), explain.summary(trace)
    worked = analysis.breakdown(trace)
    if step is not None:
        table = table.filter((pl.col("step") == step) | pl.col("step").is_null())
    ranks = [_rank(row, causes, table) for row in worked.head(MAX_RANKS).to_dicts()]
    found = {str(cause): words for cause, words in analysis.CAUSES.items() if (causes["cause"] == str(cause)).any()}
    made = Findings(
        ranks=ranks,
        causes=found,
        looks={name: asdict(look(LOOK_OF_CAUSE[name])) for name in ("work", *found)},
        note=_note(worked.height, step),
        can_show=on_show is not None,
    )
    if on_show is not None:
        made.on_msg(lambda _, message, __: _lead(message, on_show))
    return made


def _rank(row: dict[str, Any], causes: pl.DataFrame, table: pl.DataFrame) -> dict[str, Any]:
    rank, window_ns = row["rank"], row["window_ns"]
    own = causes.filter(pl.col("rank") == rank).to_dicts()
    gaps = table.filter(pl.col("rank") == rank).top_k(MAX_SENTENCES, by="duration_ns").to_dicts()
    worked_ns = row["compute_ns"] + row["overlapped_sync_ns"]
    return {
        "rank": rank,
        "work": 100 * worked_ns / window_ns if window_ns else 0.0,
        "causes": [[one["cause"], one["percent"]] for one in own],
        "gaps": [[gap["sentence"], gap["start_ns"]] for gap in gaps],
    }


def _note(num_ranks: int, step: int | None) -> str:
    which = "The longest gaps" + ("" if step is None else f" of step {step}")
    cut = f" The first {MAX_RANKS} of {num_ranks} ranks are listed." if num_ranks > MAX_RANKS else ""
    return f"{which}; the bars tell all of the trace.{cut}"


def _lead(message: dict[str, Any], on_show: Callable[[int], None]) -> None:
    if message.get("do") == "show" and isinstance(message.get("t_ns"), int):
        on_show(message["t_ns"])
