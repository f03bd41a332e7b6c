"""How often ranks synchronize and what that carries: per axis, against layers, against the latency of the links.

In: Traces. Out: a `Chart`. Nothing is worked out while drawing: counts are `analysis`', replays `replay`'s.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle

from plotly.subplots import make_subplots

from labkit import analysis
from labkit.analysis.per_layer import syncs_by_layers
from labkit.mesh import AXES
from labkit.replay.latency import last_step_ns, steps_by_latency
from labkit.trace import Trace
from labkit.view.chart import Chart, blank_chart, say_instead
from labkit.view.figures import legend_below, time_unit
from labkit.view.theme import Theme, look

LINES = (("forward", "circle"), ("backward_weight", "diamond"), ("sync", "square"), ("optimizer", "cross"))
"""Look and symbol of each line in turn."""

LATENCIES_S = (0.0, 0.25e-3, 0.5e-3, 0.75e-3, 1e-3)


def traffic_figure(trace: Trace, *, theme: Theme = "light") -> Chart:
    """What one rank takes part in during a step, for every axis: how many syncs, and the bytes of their tensors."""
    figure, totals = blank_chart("Traffic of each axis", trace, theme), analysis.sync_totals(trace)
    axes = [axis for axis in AXES[::-1] if axis in totals] + [axis for axis in totals if axis not in AXES]
    if not axes:
        return say_instead(figure, "This trace holds no syncs: nothing was exchanged, or record left them out.")
    figure = Chart(make_subplots(rows=2, cols=1, vertical_spacing=0.28, figure=figure))
    shown = (("count", "syncs of a rank in a step", 1, ",.4g"), ("bytes", "their bytes, KiB", 1024, ",.4g"))
    for row, (column, title, unit, form) in enumerate(shown, start=1):
        values = [totals[axis][column] / unit for axis in axes]
        figure.add_bar(
            x=values,
            y=axes,
            orientation="h",
            text=[f"{value:{form}}" for value in values],
            textposition="outside",
            cliponaxis=False,
            marker=dict(color=look("sync").fill(theme)),
            hovertemplate=f"%{{y}}: %{{x:{form}}} {title}<extra></extra>",
            showlegend=False,
            row=row,
            col=1,
        )
        whole = 1 if column == "count" and max(values) < 6 else None  # there is no half sync
        figure.update_xaxes(title=title, range=[0, 1.15 * max(values)], dtick=whole, row=row, col=1)
        figure.update_yaxes(autorange="reversed", showgrid=False, row=row, col=1)
    return figure.update_layout(height=200 + 2 * 34 * len(axes) + 100, bargap=0.3)


def sync_count_figure(runs: Mapping[str, Sequence[Trace]], *, theme: Theme = "light") -> Chart:
    """Syncs of one step against layers, counted from runs: a point for every run, a line through those of a method."""
    every = [trace for traces in runs.values() for trace in traces]
    figure = blank_chart("Syncs of a step against layers", every, theme)
    for (name, traces), (kind, symbol) in zip(runs.items(), cycle(LINES)):
        found = syncs_by_layers(traces)
        layers, counts = zip(*found.points)
        figure.add_scatter(
            x=layers,
            y=counts,
            mode="lines+markers",
            name=f"{name}: {found}",
            line=dict(color=look(kind).fill(theme), width=2),
            marker=dict(size=9, symbol=symbol),
            hovertemplate="%{x} layers: %{y} syncs<extra>" + name + "</extra>",
        )
    figure.update_xaxes(title="layers", rangemode="tozero").update_yaxes(title="syncs in one step", rangemode="tozero")
    return legend_below(figure.update_layout(height=460))


def latency_figure(
    runs: Mapping[str, Trace],
    *,
    latencies_s: Sequence[float] = LATENCIES_S,
    really: Mapping[str, Trace] | None = None,
    theme: Theme = "light",
) -> Chart:
    """What a step of each run would take on links of other latencies: lines, replayed.

    really: runs whose links had a latency, by the same names; they are points beside the lines.
    """
    figure = blank_chart("Time of a step against the latency of a sync", list(runs.values()), theme)
    figure.update_layout(title_subtitle_text="lines: replayed from a captured run · points: really run, emulated link")
    lines = {name: steps_by_latency(trace, latencies_s) for name, trace in runs.items()}
    scale, unit = time_unit(max(max(times) for times in lines.values()))
    for (name, times), (kind, symbol) in zip(lines.items(), cycle(LINES)):
        colour = look(kind).fill(theme)
        figure.add_scatter(
            x=[1e3 * latency for latency in latencies_s],
            y=[time / scale for time in times],
            mode="lines",
            name=name,
            line=dict(color=colour, width=2.5),
            hovertemplate=f"%{{x:g}} ms a sync: %{{y:.4g}} {unit}<extra>{name}, replayed</extra>",
        )
        if name in (really or {}):
            figure.add_scatter(
                x=[1e3 * _latency_s(really[name])],
                y=[last_step_ns(really[name]) / scale],
                mode="markers",
                name=f"{name}, really run",
                marker=dict(size=11, symbol=symbol, color=colour),
                hovertemplate=f"%{{x:g}} ms a sync: %{{y:.4g}} {unit}<extra>{name}, really run</extra>",
            )
    figure.update_xaxes(title="latency of one sync, ms", rangemode="tozero")
    figure.update_yaxes(title=f"one step, {unit}", rangemode="tozero")
    return legend_below(figure.update_layout(height=460))


def _latency_s(trace: Trace) -> float:
    """The latency that the plan's emulated link has, as the run felt it."""
    plan = trace.meta.plan or {}
    link = next(iter((plan.get("link") or {}).values()), {"latency_s": 0.0})
    return link["latency_s"] * plan.get("time_scale", 1.0)
