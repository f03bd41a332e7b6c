"""Knobs beside a picture: turn one, and the picture of that very plan appears.

In: callables, as in `controls`, and the values each knob can take. Out: a `Knobs` widget. A value whose capture is kept
shows at once; any other is run there and then, and Run repeats what is shown on this machine.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from labkit.trace import Trace
from labkit.view.chart import chart_widget
from labkit.view.controls import Form, Lab, Nearest, PlanFrom, Run
from labkit.view.fields import Field, Group, form_groups
from labkit.view.tabs import close_all

Recalled = Callable[[dict[str, Any]], Trace | None]
"""Form values -> the kept capture of that plan, if there is one."""

Draw = Callable[[Trace], Any]
"""A trace -> a widget or figure, or a list of them."""


class Knobs(Lab):
    """A form of few fields that acts by itself, and the picture below it."""

    def __init__(
        self, run: Run, plan_from: PlanFrom, form: Form, draw: Draw, recalled: Recalled, nearest: Nearest | None = None
    ):
        super().__init__(run, plan_from, form, lambda trace, _: pictures(draw(trace)), nearest=nearest)
        self._recalled = recalled
        form.observe(self._follow, "values")
        self._follow()

    def _follow(self, _: Any = None) -> None:
        """Show the plan that the knobs stand for: its capture, or a run."""
        if self.form.problem:
            return
        kept = self._recalled(dict(self.form.values))
        if self.form.state != "idle":
            self.cancel()  # of a plan no longer asked for; `_work` comes back here when it has ended
        elif kept is not None:
            self.form.set_trait("failure", "")
            self._show(kept)
        else:
            self.start()

    def _work(self, values: dict[str, Any], cancelled: threading.Event) -> None:
        super()._work(values, cancelled)
        if dict(self.form.values) != values:
            self._follow()


class Dial(ipywidgets.VBox):
    """Knobs whose picture is worked out, not run."""

    def __init__(self, form: Form, draw: Callable[..., Any]):
        self.form, self._draw, self._picture = form, draw, ipywidgets.VBox()
        super().__init__([form, self._picture])
        form.observe(self._turned, "values")
        self._turned()

    def _turned(self, _: Any = None) -> None:
        """Draw anew; what cannot be drawn says why, and the last picture stays."""
        try:
            shown = pictures(self._draw(**self.form.values))
        except ValueError as error:
            self.form.problem = str(error)
            return
        old, self._picture.children, self.form.problem = self._picture.children, shown, ""
        for widget in old:
            close_all(widget)


def knobs_form(fixed: Mapping[str, Any], knobs: Mapping[str, Sequence[Any]], title: str) -> Form:
    """Sliders for numbers, switches for flags, lists for words; each starts at `fixed`'s value, else at its first."""
    fields = _fields(fixed, knobs)
    values = {"dp": 1, "tp": 1, "pp": 1} | {field.name: field.value for field in fields}
    degrees = {axis: fixed[axis] for axis in ("dp", "tp", "pp") if axis not in knobs and axis in fixed}
    return Form(groups=[asdict(Group(title, fields))], presets={}, values=values | degrees)


def dial_form(start: Mapping[str, Any], knobs: Mapping[str, Sequence[Any]], title: str) -> Form:
    """A form like `knobs_form`'s, without Run."""
    fields = _fields(start, knobs)
    values = {field.name: field.value for field in fields}
    return Form(groups=[asdict(Group(title, fields))], values=values, is_run_here=False)


def pictures(drawn: Any) -> list[ipywidgets.Widget]:
    """What `draw` returned, as widgets."""
    many = drawn if isinstance(drawn, list | tuple) else [drawn]
    return [chart_widget(one) if isinstance(one, go.Figure) else one for one in many]


_LABELS = {one.name: one.label for group in form_groups() for one in group.fields} | {"gpus": "GPUs"}
"""What forms call the fields of a plan."""


def _fields(start: Mapping[str, Any], knobs: Mapping[str, Sequence[Any]]) -> tuple[Field, ...]:
    return tuple(_field(name, tuple(values), start.get(name)) for name, values in knobs.items())


def _field(name: str, values: tuple[Any, ...], value: Any) -> Field:
    if not values:
        raise ValueError(f"the knob {name} has no values: give at least one, e.g. {name}=(1, 2, 4)")
    start = value if value in values else values[0]
    label = _LABELS.get(name, name.replace("_", " ").capitalize())
    if set(values) == {True, False} and all(isinstance(one, bool) for one in values):
        return Field(name, label, "switch", start)
    kind = "slider" if all(isinstance(one, int | float) for one in values) else "choice"
    return Field(name, label, kind, start, choices=tuple((one, _text(one)) for one in values))


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
