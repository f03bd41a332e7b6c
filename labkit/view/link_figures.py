"""Charts of one training over several links: the line of its sync times, what its steps are made of, where it bends.

In: Traces of runs over emulated links, and tables of `link_study`. Out: a `Chart`. Nothing is worked out while drawing.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from labkit.link_study import Line, bandwidth_of, line_through, link_table, step_us, sync_times
from labkit.trace import Trace
from labkit.view.chart import Chart, blank_chart, say_instead
from labkit.view.figures import bar_of, legend_below, time_unit
from labkit.view.sync_figures import STYLES, line_of, points_of
from labkit.view.theme import Theme, look


def link_line_figure(traces: Sequence[Trace], *, theme: Theme = "light") -> Chart:
    """How long syncs took against 1 / bandwidth of their link, and the line of least squares through them."""
    figure, table = blank_chart("Sync time against 1 / bandwidth", traces, theme), sync_times(traces)
    if table["bandwidth_bytes_s"].n_unique() < 2:
        return say_instead(figure, "A line needs syncs over two different links at least: set `link` in the Plans.")
    x, y = 1e9 / table["bandwidth_bytes_s"], table["took_s"] * 1e6  # ns for a byte: s for a GB
    line, ends = line_through(x, y), [0, x.max() * 1.05]
    figure.add_scatter(
        x=ends, y=[line.intercept + line.slope * end for end in ends], name=_line_words(line), mode="lines",
        line=dict(color=look("zero_grad").fill(theme), width=2, dash="dash"), hoverinfo="skip",
    )  # fmt: skip
    hover = "%{customdata:.4g} GB/s: %{y:.4g} µs<extra>a sync</extra>"
    bandwidths = table["bandwidth_bytes_s"] / 1e9
    figure.add_scatter(
        x=x,
        y=y,
        customdata=bandwidths,
        name=f"syncs, off by {line.residual:.2f} µs at most",
        hovertemplate=hover,
        **points_of(STYLES[0], theme),
    )
    figure.update_xaxes(title="1 / bandwidth, ns for a byte", rangemode="tozero")
    figure.update_yaxes(title="sync time, µs", rangemode="tozero")
    return legend_below(figure.update_layout(height=400))


_PARTS = (
    ("compute_us", "compute alone", look("forward")),
    ("hidden_us", "sync hidden behind compute", look("recompute")),
    ("exposed_us", "exposed sync", look("sync")),
    ("idle_us", "idle", look("idle")),
)
"""Columns of `link_study.link_table`, what each is called, how it looks."""


def exposure_figure(traces: Mapping[str, Trace], *, theme: Theme = "light") -> Chart:
    """What a step is made of, a bar for every run: compute, sync hidden behind it, exposed sync, idle time."""
    figure, table = blank_chart("A step, taken apart", [*traces.values()], theme), link_table(traces)
    scale, unit = time_unit(1e3 * table["step_us"].max())
    for column, name, one in _PARTS:
        hover = f"%{{y}}: %{{x:.4g}} {unit}<extra>{name}</extra>"
        x = 1e3 * table[column] / scale
        figure.add_bar(x=x, hovertemplate=hover, **bar_of(table["name"], name, one, theme))
    figure.update_xaxes(title=f"one step, {unit}").update_yaxes(autorange="reversed", showgrid=False)
    return legend_below(figure.update_layout(barmode="stack", bargap=0.3, height=210 + 44 * table.height))


def step_curve_figure(
    curves: Mapping[str, pl.DataFrame], traces: Mapping[str, Trace], *, theme: Theme = "light"
) -> Chart:
    """A step's time against the link's bandwidth: replayed as curves (`link_study.replayed_steps`), runs as points."""
    figure = blank_chart("A step against the link's bandwidth", [*traces.values()], theme)
    for style, (name, curve) in zip(STYLES, curves.items()):
        hover = f"%{{x:.4g}} GB/s: %{{y:.4g}} µs<extra>{name}</extra>"
        shown = line_of(style, theme) | dict(mode="lines")
        figure.add_scatter(
            x=curve["bandwidth_bytes_s"] / 1e9, y=curve["step_us"], name=name, hovertemplate=hover, **shown
        )
    ran = sorted((bandwidth_of(trace) / 1e9, step_us(trace), name) for name, trace in traces.items())
    rates, steps, names = zip(*ran)
    sides = [("top", "bottom")[k % 2] + " center" for k in range(len(ran))]  # neighbours do not write over each other
    label = dict(mode="markers+text", text=names, textposition=sides, cliponaxis=False)
    hover = "%{text}: %{y:.4g} µs<extra>run</extra>"
    points = points_of(STYLES[0], theme) | label
    figure.add_scatter(x=rates, y=steps, name="really run", hovertemplate=hover, **points)
    figure.update_xaxes(title="bandwidth, GB/s", **_log_ticks((0.1, 1, 10, 100, 1000), (1,)))
    figure.update_yaxes(title="one step, µs", **_log_ticks((10, 100, 1000, 10_000, 100_000), (1, 2, 5)))
    figure.update_layout(margin_r=40)  # room for the last name
    return legend_below(figure.update_layout(height=400))


def _log_ticks(powers: Sequence[float], digits: Sequence[int]) -> dict[str, object]:
    """A logarithmic axis with ticks at these digits of each power. plotly's own are too small to read."""
    ticks = [digit * power for power in powers for digit in digits]
    return dict(type="log", tickvals=ticks, ticktext=[f"{tick:,g}" for tick in ticks])


def _line_words(line: Line) -> str:
    return f"{line.intercept:.2f} µs + {line.slope:.1f} kB / bandwidth"
