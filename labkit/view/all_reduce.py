"""The all-reduce, message by message: how every rank comes to hold the sum of what all ranks had.

In: a `Trace` of a run whose replicas averaged gradients by hand (`grad_sync` ring, tree or gather). Out: an
`AllReduceScene` widget; `static/all_reduce.js` draws it. What flies are the sends that really happened.
"""

from dataclasses import asdict
from typing import Any

import traitlets

from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.player import Player
from labkit.view.sends import MAX_SENDS, AllReduce, all_reduces, count_messages

HOW = (
    "Set grad_sync='ring', 'tree' or 'gather' in the Plan (with dp 2 or more): "
    "then replicas average by messages of their own, and every one is recorded."
)


class AllReduceScene(Player):
    """Ranks on a ring or tree, chunks that fly between them, and the sums they hold."""

    _esm = widget_module("all_reduce")
    _css = stylesheet("player", "scene")

    calls = traitlets.List().tag(sync=True)
    call = traitlets.Int(0).tag(sync=True)
    missing = traitlets.Unicode().tag(sync=True)


def all_reduce(trace: Trace, *, step: int | None = None, title: str | None = None) -> AllReduceScene:
    """A player of the trace's all-reduces; `step` opens on the first one of that training step."""
    calls = all_reduces(trace)
    opened = next((k for k, call in enumerate(calls) if call.step == step), 0)
    if step is not None and calls and calls[opened].step != step:
        known = ", ".join(sorted({str(call.step) for call in calls}))
        raise ValueError(f"step {step} holds no all-reduce by messages: steps that do are {known}")
    scene = AllReduceScene(
        trace.meta,
        heading=trace.title.rpartition(" (")[0] if title is None else title,
        calls=[_plain(call) for call in calls],
        call=opened,
        missing="" if calls else _missing(trace),
    )
    num_shown = sum(len(call.sends) for call in calls)
    if calls and num_shown < (num_all := count_messages(trace)):
        scene.notes = [*scene.notes, f"Only the first {num_shown:,} of {num_all:,} messages are shown."]
    return scene


def _plain(call: AllReduce) -> dict[str, Any]:
    sends = [asdict(send) for send in call.sends]
    return asdict(call) | {"group": list(call.group), "sends": sends, "size_bytes": call.size_bytes}


def _missing(trace: Trace) -> str:
    """Why there is nothing to show, and what to set."""
    if trace.events.is_empty():
        return "Nothing to draw: this trace holds no events."
    if num_messages := count_messages(trace):
        return (
            f"One step's all-reduces take {num_messages:,} messages or a part of them, more than can be shown "
            f"({MAX_SENDS:,}): fewer ranks, or grad_sync='tree', send fewer."
        )
    dp = int((trace.meta.plan or {}).get("dp", 1))
    if dp < 2 and not (trace.events["axis"] == "dp").any():
        return f"This run has one replica, so no gradients were averaged. {HOW}"
    return f"Replicas averaged inside the communication library, which shows no messages. {HOW}"
