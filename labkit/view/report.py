"""What a run came to, in numbers: a card of facts, and the proof that it equals the serial run.

In: a `Trace`. Out: a `Report` widget; `static/report.js` lays it out. Figures of one's own can be passed in.
"""

from collections.abc import Mapping, Sequence

import anywidget
import traitlets

from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module

_PROOF_NAMES = {"loss_max_abs_diff": "loss", "grad_max_abs_diff": "gradients", "weight_max_abs_diff": "weights"}


class Report(anywidget.AnyWidget):
    """Facts as (name, value) pairs, and a proof as (what, largest difference)."""

    _esm = widget_module("markup", "report")
    _css = stylesheet("player", "report")

    facts = traitlets.List().tag(sync=True)
    notes = traitlets.List(traitlets.Unicode()).tag(sync=True)  # what a reader must know, where no player tells it
    proof = traitlets.List().tag(sync=True)
    proof_note = traitlets.Unicode().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


def report(trace: Trace, *, facts: Mapping[str, str] | None = None, notes: Sequence[str] = ()) -> Report:
    """The report of a trace; `facts` come before those that the trace itself tells."""
    proof, note = proof_of(trace)
    return Report(
        facts=[*(facts or {}).items(), *facts_of(trace).items()], proof=proof, proof_note=note, notes=list(notes)
    )


def facts_of(trace: Trace) -> dict[str, str]:
    """What the trace's metadata says, in words."""
    meta = trace.meta
    facts = {"ranks": f"{meta.num_ranks}", "events": f"{trace.events.height:,}"}
    if meta.losses:
        facts["loss"] = f"{meta.losses[0]:.4g} → {meta.losses[-1]:.4g}"
    return facts | {_SECONDS[name]: f"{seconds:.2f} s" for name, seconds in meta.seconds.items() if name in _SECONDS}


_SECONDS = {"to_first_step": "until the first step", "total": "whole run"}
"""Of `Meta.seconds`, what a card tells."""


def proof_of(trace: Trace) -> tuple[list[tuple[str, str]], str]:
    """Largest differences from the serial run, and a sentence on how they were taken; empty without a comparison."""
    equality = trace.meta.equality
    if not equality:
        return [], ""
    proof = [
        (_PROOF_NAMES.get(key, key.replace("_", " ")), _told(key, value))
        for key, value in equality.items()
        if key != "dtype"
    ]
    dtype = equality.get("dtype")
    return proof, "Largest difference from the same training on one rank" + (f", in {dtype}." if dtype else ".")


def _told(key: str, value: float) -> str:
    """A difference in scientific form; yes or no for the rest, which files hold as 1 and 0."""
    if key in _PROOF_NAMES:
        return f"{value:.1e}" if value else "0"
    return {1: "yes", 0: "no"}.get(value, f"{value:g}")
