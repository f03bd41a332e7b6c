"""Two plans side by side: what a step takes, what is synced and held, whether they learn the same, and how well one
foretells the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from labkit.comparison import Numbers, Predicted, different_training, loss_difference, numbers, predict_from
from labkit.dashboards.form import MORE_PRESETS, PRESETS, choices, nearest_values, plan_from, run_values
from labkit.dashboards.words import told
from labkit.lab import warm_up
from labkit.trace import Trace

SIDES = ("A", "B")
_SAME = 1e-4  # of losses: float32, summed in another order


def compare() -> Any:
    """Two forms and one Run; below them, after it, the two runs beside each other."""
    from labkit.view.controls import lab_panel
    from labkit.view.pair import Pair

    def side(name: str, preset: str) -> Any:
        lab = lab_panel(
            run_values,
            plan_from,
            MORE_PRESETS,
            choices=choices(),
            nearest=nearest_values,
            link_name=name.lower(),
            heading=name,
        )
        lab.form.values = {**lab.form.values, **PRESETS[preset]}
        return lab

    def run_both(_: dict[str, Any], progress: Callable[..., None], cancelled: threading.Event) -> Any:
        runs = []
        for values in pair.values().values():
            runs.append(run_values(values, progress, cancelled))
        return tuple(runs)

    warm_up()
    pair = Pair(
        {"A": side("A", "Pipeline of 4"), "B": side("B", "Zero bubble")}, run_both, lambda runs, _: shown(*runs)
    )
    return pair


def shown(one: Trace, other: Trace) -> list[Any]:
    """The two runs: in a table, as timelines and charts, and predicted from each other."""
    from labkit.view.chart import chart_widget
    from labkit.view.controls import opening_step
    from labkit.view.figures import breakdown_figure
    from labkit.view.results import side_by_side, stacked
    from labkit.view.run_figures import predicted_figure
    from labkit.view.tabs import Tabs
    from labkit.view.timeline import timeline

    runs = dict(zip(SIDES, (one, other)))

    def timelines() -> Any:
        return stacked(
            [timeline(run, step=opening_step(run), title=f"{name}: {run.title}") for name, run in runs.items()]
        )

    def predictions() -> Any:
        found = {"A": (one, predict_from(other, one)), "B": (other, predict_from(one, other))}
        figure = predicted_figure(
            {f"{name}: {run.title.rpartition(' (')[0]}": (run, of) for name, (run, of) in found.items()}
        )
        return stacked([chart_widget(figure), _prediction_note({name: of for name, (_, of) in found.items()})])

    tabs = {
        "Timelines": timelines,
        "Where time goes": lambda: side_by_side([chart_widget(breakdown_figure(run)) for run in runs.values()]),
        "Predicted from each other": predictions,
    }
    return [beside(one, other), Tabs(tabs, label="What to compare")]


def beside(one: Trace, other: Trace) -> Any:
    """The table of both runs' numbers, and in words what it comes to."""
    from labkit.view.table import table

    found = numbers(one), numbers(other)
    words = told(found[0]), told(found[1])
    rows = [("ranks", str(found[0].num_ranks), str(found[1].num_ranks), "")]
    for name in dict.fromkeys((*words[0], *words[1])):
        here, there = words[0].get(name, ""), words[1].get(name, "")
        if here or there:
            rows.append((name, here or "none", there or "none", _change(name, *found)))
    rows += [_losses(one, other), _equal(one, other)]
    heading = f"A: {one.title} · B: {other.title}"
    return table(heading, ("", "A", "B", "B against A"), rows, verdict(one, other))


def verdict(one: Trace, other: Trace) -> list[str]:
    """Which step is shorter, and whether the two learn the same."""
    a, b = numbers(one), numbers(other)
    sentences = []
    if a.step_ns and b.step_ns:
        share = b.step_ns / a.step_ns - 1
        longer = "as long as" if abs(share) < 0.005 else f"{abs(share):.1%} {'longer' if share > 0 else 'shorter'} than"
        sentences.append(f"A step of B is {longer} one of A.")
    names = different_training(one, other)
    if names:
        sentences.append(f"They are different trainings ({', '.join(names)} differ), so their losses say nothing.")
        return sentences
    off = loss_difference(one, other)
    if off is not None:
        same = "They learn the same" if off <= _SAME else "They do NOT learn the same"
        sentences.append(f"{same}: their losses {'are equal' if off == 0 else f'differ by {off:.1e} at most'}.")
    return sentences


def _change(name: str, a: Numbers, b: Numbers) -> str:
    pairs = {
        "step": (a.step_ns, b.step_ns),
        "samples per second": (a.samples_per_s, b.samples_per_s),
        "blocked per step": (a.exposed_sync_ns, b.exposed_sync_ns),
        "most memory held": (a.memory_peak_bytes, b.memory_peak_bytes),
        **{f"{axis} sync per step": (a.sync_bytes.get(axis), b.sync_bytes.get(axis)) for axis in a.sync_bytes},
    }
    here, there = pairs.get(name, (None, None))
    shares = {"bubble": (a.bubble, b.bubble), "ranks at work": (a.working, b.working)}.get(name, (None, None))
    if None not in shares:
        return f"{100 * (shares[1] - shares[0]):+.1f} points"
    return f"{there / here - 1:+.1%}" if here and there is not None else ""


def _losses(one: Trace, other: Trace) -> tuple[str, str, str, str]:
    def words(trace: Trace) -> str:
        losses = trace.meta.losses
        return f"{losses[0]:.4g} → {losses[-1]:.4g}" if losses else "none"

    off = loss_difference(one, other)
    return "loss", words(one), words(other), "" if off is None else "equal" if off == 0 else f"{off:.1e} apart"


def _equal(one: Trace, other: Trace) -> tuple[str, str, str, str]:
    from labkit.report import worst_difference

    def words(trace: Trace) -> str:
        return f"{worst_difference(trace.meta.equality):.1e}" if trace.meta.equality else "not compared"

    return "off the serial run by at most", words(one), words(other), ""


def _prediction_note(found: dict[str, Predicted]) -> Any:
    from labkit.view.tabs import Note

    lines = ["Each run's durations and messages were learned from the other run, then put on the schedule of its plan."]
    for name, of in found.items():
        if of.problem:
            lines.append(f"{name} cannot be predicted: {of.problem}")
        elif of.clock == "cpu":
            lines.append(f"{name}: more ranks than cores, so both bars are in CPU time, without waiting for a core.")
    return Note(text="\n".join(lines))
