"""The explorer: any plan, run, with every scene and chart of it, and why its ranks wait."""

from __future__ import annotations

from typing import Any

from labkit.dashboards.conditions import what_if
from labkit.dashboards.form import MORE_PRESETS, choices, nearest_values, plan_from, run_values
from labkit.dashboards.words import facts
from labkit.lab import warm_up
from labkit.trace import Trace


def explorer() -> Any:
    """A form for any plan; below it, after a run, all that can be seen of it. The page's address holds the plan."""
    from labkit.view.controls import lab_panel
    from labkit.view.results import Results
    from labkit.view.timeline import live_timeline

    def show(trace: Trace, _: str) -> list[Any]:
        return [Results(trace, facts(trace), {"What if": lambda: what_if(trace)})]

    warm_up()
    options = {"choices": choices(), "show": show, "nearest": nearest_values}
    return lab_panel(run_values, plan_from, MORE_PRESETS, link_name="plan", live=live_timeline, **options)
