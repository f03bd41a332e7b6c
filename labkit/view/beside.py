"""Two forms side by side whose answer is computed while they are changed: a table and a chart. Nothing is run.

In: groups of fields, a callable that checks a form, and one that answers both. Out: a `Beside` widget.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from labkit.view.chart import chart_widget, plain_figure
from labkit.view.controls import Form, Lab, PlanFrom
from labkit.view.fields import Group, start_values
from labkit.view.results import side_by_side
from labkit.view.table import table


@dataclass(frozen=True)
class Compared:
    """What two sides come to: in sentences, row by row (name, A, B, difference), as a chart."""

    sentences: Sequence[str]
    rows: Sequence[Sequence[str]]
    figure: go.Figure


Answer = Callable[[dict[str, dict[str, Any]]], Compared]
"""Values of the forms by name -> the answer, or a ValueError."""


def side(heading: str, link_name: str, groups: Sequence[Group], check: PlanFrom) -> Lab:
    """One form; `check` raises ValueError for values that make no sense."""
    plain = [asdict(group) for group in groups]
    form = Form(groups=plain, values=start_values(groups), heading=heading, link_name=link_name, is_run_here=False)
    return Lab(_never, check, form, _never, groups=groups)


def _never(*_: Any) -> Any:
    raise RuntimeError("a computed side is not run")


class Beside(ipywidgets.VBox):
    """Forms by name, and the answer below them."""

    def __init__(self, labs: Mapping[str, Lab], answer: Answer):
        self.labs, self._answer_of = dict(labs), answer
        found = answer(self._values())
        self.table = table("Computed for both", ("", *labs, "difference"), found.rows, found.sentences)
        self.chart = chart_widget(found.figure)
        super().__init__([side_by_side([lab.form for lab in labs.values()]), self.table, self.chart])
        for lab in self.labs.values():
            lab.form.observe(self._answer, ["values", "problem"])

    def _values(self) -> dict[str, dict[str, Any]]:
        return {name: dict(lab.form.values) for name, lab in self.labs.items()}

    def _answer(self, _: object = None) -> None:
        try:
            found = self._answer_of(self._values())
        except (ValueError, KeyError, TypeError) as error:
            self.table.sentences, self.table.rows = [str(error)], []
            return
        self.table.sentences = list(found.sentences)
        self.table.rows = [list(row) for row in found.rows]
        self.chart.figure = plain_figure(found.figure)
