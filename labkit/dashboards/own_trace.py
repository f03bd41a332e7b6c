"""Your own trace: drop files on a page, see all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.dashboards.conditions import what_if
from labkit.dashboards.words import facts
from labkit.opening import open_trace
from labkit.trace import Trace

ACCEPTED = ".json,.gz,.parquet"
HINT = (
    "Files of the PyTorch profiler (.json, .json.gz), one for each rank or a merged one, or a labkit trace (.parquet). "
    "They stay on this machine and are deleted as soon as they are read."
)


def your_trace() -> Any:
    """A place to drop files on and, below it, all that the trace in them has to show."""
    from labkit.view.drop import Drop
    from labkit.view.results import Results, stacked
    from labkit.view.tabs import close_all

    shown = stacked([])

    def show(paths: list[Path]) -> None:
        trace = open_trace(paths)
        old, shown.children = shown.children, (Results(trace, facts(trace), _more(trace)),)
        for widget in old:
            close_all(widget)

    return stacked([Drop(show, hint=HINT, accept=ACCEPTED), shown])


def _more(trace: Trace) -> dict[str, Any]:
    return {"What if": lambda: what_if(trace)}
