"""The dashboard: a form that makes a plan, a run in a thread, and what came of it below.

In: two callables, so that the view knows neither plan nor launch. Out: a `Lab` widget.

The run is in a thread because a callback that blocks freezes the page, and with it the Cancel button. Nothing here
captures output: under Voila that hangs at random while a page loads.
"""

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anywidget
import ipywidgets
import traitlets

from labkit.trace import Trace
from labkit.view.chart import chart_widget
from labkit.view.esm import stylesheet, widget_module
from labkit.view.fields import Group, form_groups, start_values
from labkit.view.figures import loss_figure
from labkit.view.report import report
from labkit.view.sharing import shared_text, values_of
from labkit.view.tabs import close_all
from labkit.view.timeline import timeline

Progress = Callable[..., None]
"""`progress(steps_done, num_steps, place=0, wait_s=None)`: how many steps each rank has finished; while the run
waits for others, its place in line and about how long. May be called from any thread."""

PlanFrom = Callable[[dict[str, Any]], Any]
"""Form values -> a plan, or a ValueError that tells the way out. `plan_values` makes plan fields of form values."""

Run = Callable[[dict[str, Any], Progress, threading.Event], Trace | None]
"""`run(values, progress, cancelled)` -> the trace; None or an exception once `cancelled` is set."""

Show = Callable[[Trace, str], Sequence[ipywidgets.Widget]]
"""`show(trace, theme)` -> what stands below the form after a run."""


Nearest = Callable[[dict[str, Any]], tuple[dict[str, Any], str] | None]
"""Form values that cannot run -> the nearest ones that can, and what changes in words; None: nothing near is known."""


class Form(anywidget.AnyWidget):
    """The inputs, Run and Cancel, and how far the ranks are. `static/controls.js` lays it out."""

    _esm = widget_module("markup", "address", "controls")
    _css = stylesheet("player", "controls")

    heading = traitlets.Unicode().tag(sync=True)
    groups = traitlets.List().tag(sync=True)
    presets = traitlets.Dict().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)  # why this plan cannot run
    nearest = traitlets.Dict().tag(sync=True)  # {values, words}: the nearest that can
    plan_text = traitlets.Unicode().tag(sync=True)  # the plan, when it can
    link_name = traitlets.Unicode().tag(sync=True)  # what the page's address calls this form; empty: it is not there
    link_text = traitlets.Unicode().tag(sync=True)  # the values as a short text
    run_text = traitlets.Unicode("Run").tag(sync=True)
    is_run_here = traitlets.Bool(True).tag(sync=True)  # else another form of the page has the Run button
    state = traitlets.Enum(("idle", "running", "cancelling"), "idle").tag(sync=True)
    failure = traitlets.Unicode().tag(sync=True)  # how the last run ended, unless well
    steps_done = traitlets.List().tag(sync=True)
    num_steps = traitlets.Int().tag(sync=True)
    place = traitlets.Int().tag(sync=True)  # in line, while others run; 0: its own ranks are at work
    wait_s = traitlets.Float(None, allow_none=True).tag(sync=True)  # about how long that will last
    page_theme = traitlets.Unicode("light").tag(sync=True)  # the browser's word
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


class Lab(ipywidgets.VBox):
    """The form and, below it, what `show` makes of the last run. `trace` is that run."""

    trace = traitlets.Any(None, allow_none=True)

    def __init__(
        self,
        run: Run,
        plan_from: PlanFrom,
        form: Form,
        show: Show,
        *,
        nearest: Nearest | None = None,
        groups: Sequence[Group] = (),
        live: Callable[[Any], Any] | None = None,
    ):
        self.form = form
        self._nearest, self._groups, self._live = nearest, groups, live
        self._run, self._plan_from, self._show_trace = run, plan_from, show
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None
        self._results = ipywidgets.VBox()
        super().__init__([form, self._results])
        form.observe(self._check, "values")
        form.on_msg(self._on_message)
        self._check()

    def start(self) -> None:
        """Run what the form says, unless it cannot run or something is running."""
        if self.form.problem or self.form.state != "idle":
            return
        self._cancelled = threading.Event()
        self.form.set_trait("failure", "")
        self.form.steps_done, self.form.place, self.form.state = [], 0, "running"
        self._thread = threading.Thread(target=self._work, args=(dict(self.form.values), self._cancelled), daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Ask the run to stop; it ends within a moment."""
        if self.form.state == "running":
            self.form.state = "cancelling"
            self._cancelled.set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the run is over. For scripts and tests; a page must not."""
        if self._thread:
            self._thread.join(timeout_s)

    def _check(self, _: Any = None) -> None:
        values = dict(self.form.values)
        self.form.link_text, self.form.nearest = shared_text(self._groups, values), {}
        try:
            plan = self._plan_from(values)
        except (ValueError, TypeError, KeyError) as error:
            self.form.problem, self.form.plan_text = str(error), ""
            if self._nearest:
                threading.Thread(target=self._look_near, args=(values,), daemon=True).start()
        else:
            self.form.problem, self.form.plan_text = "", str(plan)

    def _look_near(self, values: dict[str, Any]) -> None:
        """The search takes a moment; its answer counts only while the form still holds what was asked about."""
        found = self._nearest(values)
        if found and self.form.values == values:
            self.form.nearest = {"values": found[0], "words": found[1]}

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        if message.get("do") == "take":
            self.take(str(message.get("text", "")))
        action = {"run": self.start, "cancel": self.cancel}.get(message.get("do"))
        if action:
            action()

    def take(self, text: str) -> None:
        """Fill the form with what `form.link_text` said elsewhere; one that cannot be read is told."""
        try:
            self.form.values = values_of(self._groups, text)
        except ValueError as error:
            self.form.failure = str(error)

    def _work(self, values: dict[str, Any], cancelled: threading.Event) -> None:
        try:
            trace = self._run(values, self._progress, cancelled, **self._watched(values))
            if cancelled.is_set() or trace is None:
                self.form.failure = "Cancelled. The ranks were stopped."
            else:
                self._show(trace)
        except BaseException as error:  # whatever ends the run, the page must say so and come back to life
            self.form.failure = "Cancelled. The ranks were stopped." if cancelled.is_set() else _told(error)
            self._show_what_was_recorded(getattr(error, "trace", None))
        finally:
            self.form.state = "idle"

    def _watched(self, values: dict[str, Any]) -> dict[str, Any]:
        """What makes the run draw itself while it goes: `on_trace`, where a live picture was asked for."""
        if self._live is None:
            return {}
        picture = self._live(self._plan_from(values))
        self._put([picture])
        return {"on_trace": picture.follow}

    def _show_what_was_recorded(self, trace: Trace | None) -> None:
        """After a fault: the events until then."""
        if trace is not None and trace.events.height:
            self._show(trace)

    def _progress(self, steps_done: Sequence[int], num_steps: int, place: int = 0, wait_s: float | None = None) -> None:
        self.form.wait_s, self.form.place = wait_s, place
        steps = [int(done) for done in steps_done]
        if steps != self.form.steps_done or num_steps != self.form.num_steps:
            self.form.num_steps, self.form.steps_done = int(num_steps), steps

    def _show(self, trace: Trace) -> None:
        theme = "dark" if self.form.page_theme == "dark" else "light"
        self._put(self._show_trace(trace, theme))
        self.trace = trace

    def _put(self, shown: Sequence[ipywidgets.Widget]) -> None:
        """These below the form, in the place of what was there."""
        old, self._results.children = self._results.children, tuple(shown)
        for widget in old:
            close_all(widget)


def lab_panel(
    run: Run,
    plan_from: PlanFrom,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    choices: Mapping[str, Sequence[str]] | None = None,
    show: Show | None = None,
    nearest: Nearest | None = None,
    link_name: str = "",
    heading: str = "",
    live: Callable[[Any], Any] | None = None,
) -> Lab:
    """The form and what comes of it.

    presets: form values by name, each a button, over those the form opens with. choices: what task, schedule, link and
    so on offer. show: what stands below after a run. link_name: the form's name in the page's address. live: plan -> a
    picture of the run while it goes, whose `follow` the run then gets as `on_trace`.
    """
    groups = form_groups(choices)
    values = start_values(groups)
    unknown = sorted({name for preset in (presets or {}).values() for name in preset} - set(values))
    if unknown:
        raise ValueError(f"a preset sets {', '.join(unknown)}: the form's fields are {', '.join(values)}")
    whole_presets = {name: values | dict(preset) for name, preset in (presets or {}).items()}
    form = Form(
        groups=[asdict(group) for group in groups],
        presets=whole_presets,
        values=values,
        link_name=link_name,
        heading=heading,
    )
    return Lab(run, plan_from, form, show or show_briefly, nearest=nearest, groups=groups, live=live)


def show_briefly(trace: Trace, theme: str) -> list[ipywidgets.Widget]:
    """A timeline, the numbers, the loss."""
    return [timeline(trace, step=opening_step(trace)), report(trace), chart_widget(loss_figure(trace, theme=theme))]


def opening_step(trace: Trace) -> int | None:
    """The second step, where there is one: the first also pays for starting, and all together are too small to read."""
    steps = trace.events["step"].drop_nulls().unique().sort()
    return int(steps[1]) if len(steps) > 1 else None


def _told(error: BaseException) -> str:
    """An error for people: its own words; for an unexpected kind also where it happened."""
    if isinstance(error, ValueError | RuntimeError | OSError) and str(error):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
