"""Charts: pure functions from a trace to a plotly figure. No `.show()`, and no numbers worked out while drawing.

In: a `Trace`. Out: a `Chart`, an ordinary `go.Figure` that, displayed in a notebook, loads nothing from elsewhere and
offers no button that would send the data away.
"""

import math
import textwrap
from typing import Any

import plotly.graph_objects as go
import polars as pl

from labkit import analysis
from labkit.analysis.memory import HELD
from labkit.trace import Trace
from labkit.view.player import source_badge
from labkit.view.theme import HELD_LOOKS, Look, Theme, look, template

NOTE_WIDTH = 44
"""Characters in a line of a note."""

MIME = "application/vnd.plotly.v1+json"

CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,  # on by default: a button that uploads the chart
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}


class Chart(go.Figure):
    """A figure that displays as plotly's own mime type only: the page draws it with the plotly it already has."""

    _ipython_display_ = None  # plotly's own comes first and shows the figure with its defaults, upload button included
    _repr_html_ = None  # carries all of plotly.js, 5 MB

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, validate: bool = True, **kwargs: Any) -> dict:
        return mime_bundle(self)


def mime_bundle(figure: go.Figure) -> dict[str, Any]:
    """What a notebook stores to show the figure."""
    return {MIME: {**figure.to_plotly_json(), "config": CONFIG}, "text/plain": "a plotly figure"}


def loss_figure(trace: Trace, *, theme: Theme = "light") -> Chart:
    """The loss of every step. One step is a single dot; a trace without losses says so."""
    losses = trace.meta.losses
    figure = blank_chart("Loss", trace, theme)
    figure.update_layout(xaxis_title="step", yaxis_title="loss", height=320, hovermode="x")
    figure.update_xaxes(dtick=1 if len(losses) <= 20 else None, range=[-0.4, max(len(losses), 2) - 0.6])
    if not losses:
        return say_instead(figure, "This trace holds no losses: nothing was trained.")
    colour = look("forward").fill(theme)
    figure.add_scatter(
        x=list(range(len(losses))),
        y=list(losses),
        mode="lines+markers",
        line=dict(color=colour, width=2.5),
        marker=dict(size=8),
        hovertemplate="step %{x}: %{y:.6g}<extra></extra>",
    )
    return figure


_BREAKDOWN = (
    ("compute_ns", "compute", look("forward")),
    ("overlapped_sync_ns", "compute while a sync is under way", look("recompute")),
    ("exposed_sync_ns", "sync alone, or blocked in it", look("sync")),
    ("idle_ns", "idle", look("idle")),
)
"""Columns of `analysis.breakdown`, what each is called, how it looks."""

_PATTERNS = {"solid": "", "stripes": "/", "hatch": "\\", "bars": "|", "dots": ".", "grid": "+"}
"""Our patterns in plotly's words."""

_SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "star")


def breakdown_figure(trace: Trace, *, theme: Theme = "light") -> Chart:
    """Where each rank's time went: a bar of compute, overlapped and exposed sync, and idle time for every rank."""
    figure, table = blank_chart("Time of each rank", trace, theme), analysis.breakdown(trace)
    if table.is_empty() or not table["window_ns"].sum():
        return say_instead(figure, "This trace holds no computation and no syncs.")
    scale, unit = _time_unit(table["window_ns"].max())
    for column, name, one in _BREAKDOWN:
        share = 100 * table[column] / table["window_ns"]
        hover = f"rank %{{y}}: %{{x:.4g}} {unit}, %{{customdata:.1f}} %<extra>{name}</extra>"
        figure.add_bar(x=table[column] / scale, customdata=share, hovertemplate=hover, **_bar(table, name, one, theme))
    return _rank_bars(figure, table.height, f"time, {unit}")


def sync_figure(trace: Trace, *, theme: Theme = "light") -> Chart:
    """Every collective and message: its bytes, and the time it took once all its ranks had come."""
    figure, table = blank_chart("Sync time against bytes", trace, theme), analysis.bandwidth(trace)
    timed = table.filter((pl.col("transfer_ns") > 0) & (pl.col("size_bytes") > 0))
    if timed.is_empty():
        why = "Its syncs took no set time: set `link` in the Plan." if table.height else "It holds no syncs."
        return say_instead(figure, f"No sync of this trace has bytes and a duration. {why}")
    kinds = timed.select("axis", "op").unique().sort("axis", "op").rows()
    for number, (axis, op) in enumerate(kinds):
        own = timed.filter((pl.col("axis") == axis) & (pl.col("op") == op))
        figure.add_scatter(
            x=own["size_bytes"],
            y=own["transfer_ns"] / 1000,
            customdata=own["bus_bytes_s"] / 1e6,
            mode="markers",
            name=f"{axis} {'message' if op == 'send' else op}",
            marker=dict(size=9, symbol=_SYMBOLS[number % len(_SYMBOLS)], line=dict(width=1), opacity=0.75),
            hovertemplate="%{x:,} bytes in %{y:,.4g} µs, %{customdata:,.4g} MB/s on the wire",
        )
    figure.update_xaxes(title="bytes of the whole tensor", **_log_axis(timed["size_bytes"]))
    figure.update_yaxes(title="time, µs", **_log_axis(timed["transfer_ns"] / 1000))
    left_out = table.height - timed.height
    _legend_below(figure.update_layout(height=480))
    return _remark(figure, f"{left_out:,} syncs that took no time are left out.") if left_out else figure


def memory_figure(trace: Trace, *, limit_bytes: int | None = None, theme: Theme = "light") -> Chart:
    """What each rank held at its peak, and a limit where one is given."""
    figure, lanes = blank_chart("Memory at each rank's peak", trace, theme), analysis.memory_lanes(trace)
    if lanes.is_empty():
        return say_instead(figure, "This trace does not say what ranks held: set record='memory' in the Plan.")
    total = pl.sum_horizontal(HELD)
    peaks = lanes.with_columns(total.alias("total")).sort("total", descending=True, maintain_order=True)
    peaks = peaks.unique("rank", keep="first", maintain_order=True).sort("rank")
    scale, unit = _size_unit(max(peaks["total"].max(), limit_bytes or 0))
    for column, one in zip(HELD, HELD_LOOKS):
        hover = f"rank %{{y}}: %{{x:.4g}} {unit}<extra>{one.label}</extra>"
        figure.add_bar(x=peaks[column] / scale, hovertemplate=hover, **_bar(peaks, one.label, one, theme))
    if limit_bytes:
        figure.add_vline(
            limit_bytes / scale, line=dict(color="#c62f2f", width=2), annotation=dict(text="limit", yanchor="bottom")
        )
    return _rank_bars(figure, peaks.height, f"memory, {unit}")


def _bar(table: pl.DataFrame, name: str, one: Look, theme: Theme) -> dict[str, Any]:
    """A horizontal bar for every rank, with a look's colour and pattern."""
    pattern = dict(shape=_PATTERNS[one.pattern], fgcolor=one.text(theme), fgopacity=0.3, size=7, fillmode="overlay")
    marker = dict(color=one.fill(theme), pattern=pattern, line=dict(width=0.5, color=one.text(theme)))
    return dict(y=table["rank"], name=name, orientation="h", marker=marker)


def _rank_bars(figure: Chart, num_ranks: int, title: str) -> Chart:
    """Bars of ranks from the top, piled up; a legend below, where it can wrap without covering the title."""
    figure.update_yaxes(title="rank", autorange="reversed", dtick=1 if num_ranks <= 32 else None, showgrid=False)
    figure.update_xaxes(title=title)
    height = 250 + max(28 * min(num_ranks, 16), min(8 * num_ranks, 1600))
    return _legend_below(figure.update_layout(barmode="stack", bargap=0.25, height=height))


def _legend_below(figure: Chart) -> Chart:
    legend = dict(yref="container", y=0, yanchor="bottom", traceorder="normal")
    return figure.update_layout(showlegend=True, legend=legend, margin_b=130)


def _remark(figure: Chart, text: str) -> Chart:
    """A quiet line at the plot's upper edge."""
    place = dict(x=1, y=1, xref="paper", yref="paper", xanchor="right", yanchor="bottom")
    return figure.add_annotation(text=text, showarrow=False, font_size=12, **place)


def _log_axis(values: pl.Series) -> dict[str, Any]:
    """A logarithmic axis with ticks at 1, 2 and 5; over many powers at 1 only. plotly's own are too small to read."""
    low, high = math.floor(math.log10(values.min())), math.ceil(math.log10(values.max()))
    digits = (1, 2, 5) if high - low <= 3 else (1,)
    ticks = [digit * 10.0**power for power in range(low, high + 1) for digit in digits]
    return dict(type="log", tickvals=ticks, ticktext=[f"{tick:,.6g}" for tick in ticks])


def _time_unit(longest_ns: float) -> tuple[float, str]:
    return next(((ns, unit) for unit, ns in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if longest_ns >= 2 * ns), (1, "ns"))


def _size_unit(most_bytes: float) -> tuple[int, str]:
    sizes = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
    return next(((size, unit) for unit, size in sizes if most_bytes >= size), (1, "bytes"))


def blank_chart(title: str, trace: Trace, theme: Theme) -> Chart:
    """An empty chart with its title and, below it in small, what was run and where the times come from."""
    what = trace.title.rpartition(" (")[0]
    subtitle = f"{what} · times: {source_badge(trace.meta)}"
    return Chart(layout=dict(template=template(theme), title=dict(text=title, subtitle=dict(text=subtitle))))


def say_instead(figure: Chart, note: str) -> Chart:
    """A note in place of data, in lines that a narrow page holds."""
    figure.update_xaxes(visible=False).update_yaxes(visible=False)
    figure.add_annotation(text="<br>".join(textwrap.wrap(note, NOTE_WIDTH)), showarrow=False, font_size=14)
    return figure
