"""The scorecard page: predictions beside what was measured, by us and by others, and one pair to run again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from labkit.lab import run
from labkit.mesh import AXES
from labkit.own_runs import PAIRS, Pair, Record, Trial, try_pair
from labkit.own_runs.record import TABLES
from labkit.plan import Plan
from labkit.scorecard import Score, markdown, missing_files, scores
from labkit.sentences import time_words
from labkit.trace import Trace

FOLDERS = ("facts", "../shared/facts", "../../shared/facts")
"""Where the page looks for published tables: seen from the notebooks."""


def published(folders: Sequence[str | Path] = FOLDERS) -> list[Score]:
    """The published tables that are at hand, predicted."""
    return scores(next((folder for folder in folders if Path(folder).is_dir()), FOLDERS[0]))


def published_page(found: Sequence[Score], folders: Sequence[str | Path] = FOLDERS) -> str:
    """All of them as Markdown below a heading; where none is at hand, what to do comes first."""
    folder = next((folder for folder in folders if Path(folder).is_dir()), None)
    absent = missing_files(folder or FOLDERS[0])
    page = markdown(list(found), absent if folder else []).partition("\n\n")[2].replace("\n## ", "\n### ")
    if folder:
        return page
    return (
        "**The published tables are not here.** They are not part of labkit. Put them as CSV files into a folder "
        "`facts` beside this notebook and load the page again, or run `labkit scorecard FOLDER` in a shell. "
        f"The files: {', '.join(f'`{name}`' for name in absent)}.\n\n{page}"
    )


def errors_chart(record: Record, found: Sequence[Score]) -> Any:
    """A dot for every row of both. Differences of rates are left out: they are no relative errors."""
    from labkit.view.accuracy_figure import accuracy_figure

    own = {
        TABLES[name].title: [(f"{row.case}, {row.quantity}", row.error) for row in record.of(name)] for name in TABLES
    }
    others = {
        score.title: [(f"{row.case}, {row.quantity}", row.error) for row in score.rows]
        for score in found
        if not score.absolute
    }
    return accuracy_figure({"runs of our own": own, "published tables": others})


def run_again(pairs: Sequence[Pair] = PAIRS) -> Any:
    """Choose a pair, run it now: the captured plan, the prediction from it, and the new plan for real."""
    from labkit.view.controls import Form, Lab
    from labkit.view.fields import Field, Group

    choices = tuple((place, str(pair)) for place, pair in enumerate(pairs))
    fields = (Field("pair", "Captured run and what is changed", "choice", 0, choices=choices),)
    group = Group("One pair, run on this machine now", fields)
    form = Form(groups=[asdict(group)], presets={}, values=_values(pairs, 0))
    trials: list[Trial] = []

    def follow(change: dict[str, Any]) -> None:
        """The form tells the ranks of the plan that was chosen."""
        form.values = _values(pairs, change["new"]["pair"])

    form.observe(follow, "values")

    def plan_from(turned: dict[str, Any]) -> Plan:
        return pairs[int(turned["pair"])].new

    def run_values(turned: dict[str, Any], progress: Callable[..., None], cancelled: threading.Event) -> Trace:
        options = {"on_progress": lambda now: now.tell(progress), "cancelled": cancelled}
        trial = try_pair(pairs[int(turned["pair"])], run=partial(run, **options))
        trials[:] = [trial]
        return trial.run

    return Lab(run_values, plan_from, form, lambda *_: _pictures(trials[0]) if trials else [])


def _values(pairs: Sequence[Pair], chosen: Any) -> dict[str, Any]:
    """What the form holds: the choice, and the degrees of its new plan."""
    plan = pairs[int(chosen)].new
    return {"pair": int(chosen), **{axis: getattr(plan, axis) for axis in AXES}}


def _pictures(trial: Trial) -> list[Any]:
    """The numbers, and both traces one below the other."""
    from labkit.view.controls import opening_step
    from labkit.view.report import report
    from labkit.view.timeline import timeline

    found = trial.compared
    facts = {
        "step predicted": time_words(found.predicted * 1e6),
        "step measured": time_words(found.measured * 1e6),
        "error": f"{found.error:+.1%}",
    }
    players = [timeline(trace, step=opening_step(trace)) for trace in (trial.predicted, trial.run)]
    return [report(trial.run, facts=facts), *players]
