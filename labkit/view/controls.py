"""The dashboard: a form that makes a plan, a run in a thread, and what came of it below.

In: two callables, so that the view knows neither plan nor launch. Out: a `Lab` widget.

The run is in a thread because a callback that blocks freezes the page, and with it the Cancel button. Nothing here
captures output: under Voila that hangs at random while a page loads.
"""

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import anywidget
import ipywidgets
import traitlets

from labkit.trace import Trace
from labkit.view.esm import join_modules, stylesheet
from labkit.view.figures import loss_figure, mime_bundle
from labkit.view.report import report
from labkit.view.timeline import timeline

Progress = Callable[[Sequence[int], int], None]
"""`progress(steps_done, num_steps)`: how many steps each rank has finished. May be called from any thread."""

PlanFrom = Callable[[dict[str, Any]], Any]
"""Form values -> a plan, or a ValueError that tells the way out. `plan_values` makes plan fields of form values."""

Run = Callable[[dict[str, Any], Progress, threading.Event], Trace | None]
"""`run(values, progress, cancelled)` -> the trace; None or an exception once `cancelled` is set."""

Show = Callable[[Trace, str], Sequence[ipywidgets.Widget]]
"""`show(trace, theme)` -> what stands below the form after a run."""


@dataclass(frozen=True)
class Field:
    """One input of the form. `kind`: number, choice, slider (over `choices`) or switch.

    One with `needs` applies while that field is set.
    """

    name: str
    label: str
    kind: str
    value: Any
    help: str = ""
    choices: tuple[tuple[Any, str], ...] = ()
    low: float | None = None
    high: float | None = None
    needs: str = ""


@dataclass(frozen=True)
class Group:
    """Fields that belong together, under one heading."""

    title: str
    fields: tuple[Field, ...] = field(default=())


DEGREES = tuple((n, str(n)) for n in (1, 2, 3, 4, 6, 8))
CHOICES = {
    "task": ("digits",),
    "schedule": ("1f1b", "gpipe"),
    "optimizer": ("sgd", "adam", "adamw"),
    "link": (),
}
"""What the choices offer unless `lab_panel` is told more."""


def form_groups(choices: Mapping[str, Sequence[str]] | None = None) -> tuple[Group, ...]:
    """The form: what is trained, how it is spread, how fast it goes. Field names are those of a Plan."""
    offered = CHOICES | dict(choices or {})
    known = {name: tuple((value, value) for value in values) for name, values in offered.items()}

    def first(name: str) -> str:
        """Our own first choice if it is offered, else theirs."""
        return CHOICES[name][0] if CHOICES[name][0] in offered[name] else offered[name][0]

    trained = (
        Field("task", "Task", "choice", first("task"), choices=known["task"]),
        Field("layers", "Layers", "number", 8, low=1, high=64),
        Field("global_batch", "Global batch", "number", 64, "samples of one step, over all replicas", low=1, high=4096),
        Field("steps", "Steps", "number", 3, low=1, high=1000),
        Field("optimizer", "Optimizer", "choice", first("optimizer"), choices=known["optimizer"]),
        Field("lr", "Learning rate", "number", None, "empty: the optimizer's own", low=0),
    )
    spread = (
        Field("dp", "Data parallel", "choice", 1, "replicas, each with a share of the batch", DEGREES),
        Field("tp", "Tensor parallel", "choice", 1, "ranks that share each weight matrix", DEGREES),
        Field("pp", "Pipeline", "choice", 4, "stages, each with a run of layers", DEGREES),
        Field("zero", "ZeRO", "choice", 0, "what replicas share out", _ZERO),
        Field("schedule", "Schedule", "choice", first("schedule"), choices=known["schedule"], needs="pp"),
        Field("microbatches", "Microbatches", "number", 8, "pieces of a replica's batch", low=1, high=256),
    )
    speed = (
        Field("paced", "Set durations", "switch", True, "every operation takes a set time; else this machine's own"),
        Field(
            "forward_ms", "Forward, ms", "number", 20, "of one rank, one microbatch", low=0, high=5000, needs="paced"
        ),
        Field("backward_ms", "Backward, ms", "number", 40, low=0, high=5000, needs="paced"),
        Field("link", "Link", "choice", "", "emulated between all ranks", (("", "this machine"), *known["link"])),
        Field("time_scale", "Time scale", "number", 1, "all set speeds are so many times slower", low=1, high=1e6),
    )
    return Group("What is trained", trained), Group("How it is spread", spread), Group("How fast it goes", speed)


_ZERO = ((0, "0: nothing (DDP)"), (1, "1: optimizer state"), (2, "2: and gradients"), (3, "3: and parameters"))


def plan_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """A form's values as the fields of a Plan: pace as text, what does not apply left out."""
    plan = {name: value for name, value in values.items() if name not in ("paced", "forward_ms", "backward_ms")}
    if values["paced"]:
        plan["pace"] = f"forward={values['forward_ms']:g}ms,backward={values['backward_ms']:g}ms"
    if plan["pp"] == 1:
        del plan["schedule"]
    return {name: value for name, value in plan.items() if value not in (None, "")}


class Form(anywidget.AnyWidget):
    """The inputs, Run and Cancel, and how far the ranks are. `static/controls.js` lays it out."""

    _esm = join_modules("markup", "controls")
    _css = stylesheet("player", "controls")

    groups = traitlets.List().tag(sync=True)
    presets = traitlets.Dict().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)  # why this plan cannot run
    plan_text = traitlets.Unicode().tag(sync=True)  # the plan, when it can
    state = traitlets.Enum(("idle", "running", "cancelling"), "idle").tag(sync=True)
    failure = traitlets.Unicode().tag(sync=True)  # how the last run ended, unless well
    steps_done = traitlets.List().tag(sync=True)
    num_steps = traitlets.Int().tag(sync=True)
    page_theme = traitlets.Unicode("light").tag(sync=True)  # the browser's word
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


class Lab(ipywidgets.VBox):
    """The form and, below it, what `show` makes of the last run. `trace` is that run."""

    trace = traitlets.Any(None, allow_none=True)

    def __init__(self, run: Run, plan_from: PlanFrom, form: Form, show: Show):
        self.form = form
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
        self.form.steps_done, self.form.state = [], "running"
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
        try:
            plan = self._plan_from(dict(self.form.values))
        except (ValueError, TypeError, KeyError) as error:
            self.form.problem, self.form.plan_text = str(error), ""
        else:
            self.form.problem, self.form.plan_text = "", str(plan)

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        action = {"run": self.start, "cancel": self.cancel}.get(message.get("do"))
        if action:
            action()

    def _work(self, values: dict[str, Any], cancelled: threading.Event) -> None:
        try:
            trace = self._run(values, self._progress, cancelled)
            if cancelled.is_set() or trace is None:
                self.form.failure = "Cancelled. The ranks were stopped."
            else:
                self._show(trace)
        except BaseException as error:  # whatever ends the run, the page must say so and come back to life
            self.form.failure = "Cancelled. The ranks were stopped." if cancelled.is_set() else _told(error)
        finally:
            self.form.state = "idle"

    def _progress(self, steps_done: Sequence[int], num_steps: int) -> None:
        steps = [int(done) for done in steps_done]
        if steps != self.form.steps_done or num_steps != self.form.num_steps:
            self.form.num_steps, self.form.steps_done = int(num_steps), steps

    def _show(self, trace: Trace) -> None:
        theme = "dark" if self.form.page_theme == "dark" else "light"
        old, self._results.children = self._results.children, tuple(self._show_trace(trace, theme))
        for widget in old:
            widget.close()
        self.trace = trace


def lab_panel(
    run: Run,
    plan_from: PlanFrom,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    choices: Mapping[str, Sequence[str]] | None = None,
    facts: Callable[[Trace], Mapping[str, str]] | None = None,
) -> Lab:
    """The dashboard. `presets`: form values by name, each a button; `choices`: what task, schedule, optimizer and link
    offer; `facts`: more numbers to show of a trace."""
    groups = form_groups(choices)
    values = {one.name: one.value for group in groups for one in group.fields}
    unknown = sorted({name for preset in (presets or {}).values() for name in preset} - set(values))
    if unknown:
        raise ValueError(f"a preset sets {', '.join(unknown)}: the form's fields are {', '.join(values)}")
    plain_presets = {name: dict(preset) for name, preset in (presets or {}).items()}
    form = Form(groups=[asdict(group) for group in groups], presets=plain_presets, values=values)

    def show(trace: Trace, theme: str) -> list[ipywidgets.Widget]:
        return [
            timeline(trace, step=_opening_step(trace)),
            report(trace, facts=facts(trace) if facts else None),
            chart_widget(loss_figure(trace, theme=theme)),
        ]

    return Lab(run, plan_from, form, show)


def chart_widget(figure: Any) -> ipywidgets.Output:
    """A plain figure as a widget. Its output is set, not captured (capturing can hang a Voila page)."""
    outputs = ({"output_type": "display_data", "data": mime_bundle(figure), "metadata": {}},)
    return ipywidgets.Output(outputs=outputs)


def _opening_step(trace: Trace) -> int | None:
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
