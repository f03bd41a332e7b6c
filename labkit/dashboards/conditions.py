"""What if: a recorded run under other conditions, replayed while the reader moves sliders.

In: a Trace. Out: a `WhatIf`, or a note that says why this trace cannot be replayed.
"""

from __future__ import annotations

from typing import Any

from labkit import analysis, link
from labkit.comparison import Numbers, numbers
from labkit.dashboards.words import told
from labkit.replay import Changes, ReplayError, replay, step_ns
from labkit.trace import Trace

MOST_OFF = 0.02
"""A replay as it was must give the recorded step within this share, else its answers are worth nothing."""


def what_if(trace: Trace) -> Any:
    """Sliders over a trace's conditions. Each answer is a replay of the recorded events."""
    from labkit.view.tabs import Note
    from labkit.view.what_if import Answer, WhatIf, condition_fields

    why_not = cannot_replay(trace)
    if why_not:
        return Note(text=f"{why_not} {free_of_syncs(trace)}")
    before = numbers(trace)

    def ask(values: dict[str, Any]) -> Answer:
        after = replay(trace, changes_of(values))
        return Answer(after, differences(before, numbers(after)))

    has_syncs = not trace.of("sync").is_empty()
    return WhatIf(condition_fields(trace.meta.num_ranks, list(link.PRESETS), has_syncs), ask)


def cannot_replay(trace: Trace) -> str:
    """Why a trace's what-if would not be true; empty where it is."""
    if not trace.of("kernel").is_empty():
        return (
            "What if needs a run that labkit recorded: a profiler's file does not say which kernel waits for which, "
            "so other speeds cannot be worked out from it."
        )
    try:
        recorded, again = step_ns(trace), step_ns(replay(trace))
    except ReplayError as error:
        return f"This trace cannot be replayed: {error}."
    if abs(again / recorded - 1) > MOST_OFF:
        return (
            f"Replayed as it was, a step of this trace takes {again / 1e6:.4g} ms instead of {recorded / 1e6:.4g} ms: "
            f"the recorded events do not explain it, so what-if would not be true."
        )
    return ""


def free_of_syncs(trace: Trace) -> str:
    """The one what-if that needs no replay: how much faster each rank could be at best if no sync were waited for."""
    table = analysis.breakdown(trace).filter(analysis.breakdown(trace)["window_ns"] > 0)
    shares = [f"rank {row['rank']} {row['exposed_sync_ns'] / row['window_ns']:.1%}" for row in table.head(8).to_dicts()]
    return (
        f"If no sync were ever waited for, a step would be shorter by at most: {', '.join(shares)}." if shares else ""
    )


def changes_of(values: dict[str, Any]) -> Changes:
    """The sliders as `Changes`. Free syncs make the choice of a link meaningless."""
    slow = values["slow_rank"]
    is_free = values.get("free_syncs", False)
    return Changes(
        compute=values["compute"],
        slow_ranks={int(slow): values["slow_factor"]} if slow else {},
        link="" if is_free else values.get("link", ""),
        no_sync=is_free,
    )


def differences(before: Numbers, after: Numbers) -> list[tuple[str, str]]:
    """Every number that a replay changes: before, after, and how much less or more."""
    names = ("step", "samples per second", "ranks at work", "bubble", "blocked per step")
    old, new = told(before), told(after)
    facts = [(name, f"{old[name] or 'none'} → {new[name] or 'none'}") for name in names if old[name] or new[name]]
    if before.step_ns and after.step_ns:
        facts.insert(0, ("a step takes", f"{after.step_ns / before.step_ns - 1:+.1%}"))
    return facts
