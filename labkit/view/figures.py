"""Charts of one trace: pure functions to a plotly figure. No `.show()`, and no numbers worked out while drawing.

In: a `Trace`. Out: a `Chart`. Displayed, charts follow the page's theme; `theme` is for those written to a file.
"""

import math
from typing import Any, Literal

import numpy as np
import polars as pl

from labkit import analysis
from labkit.analysis.loss_times import loss_times_ns
from labkit.analysis.memory import HELD
from labkit.trace import Trace
from labkit.view.chart import BAD, Chart, blank_chart, say_instead
from labkit.view.theme import HELD_LOOKS, Look, Theme, look


def loss_figure(trace: Trace, *, by: Literal["step", "time"] = "step", theme: Theme = "light") -> Chart:
    """The loss of every step, against the steps or against the time at which the last rank had done them."""
    losses = trace.meta.losses
    figure = blank_chart("Loss", trace, theme).update_layout(yaxis_title="loss", height=320, hovermode="x")
    if not losses:
        return say_instead(figure, "This trace holds no losses: nothing was trained.")
    ends = loss_times_ns(trace) if by == "time" else None
    if ends is not None and len(ends) < len(losses):
        return say_instead(figure, "This trace does not say when its steps ended: set record='compute' in the Plan.")
    scale, unit = time_unit(ends[-1]) if ends is not None else (1, "")
    x = [end / scale for end in ends[: len(losses)]] if ends is not None else list(range(len(losses)))
    figure.update_xaxes(title=f"time, {unit}" if ends is not None else "step", rangemode="tozero")
    if ends is None:
        figure.update_xaxes(dtick=1 if len(losses) <= 20 else None, range=[-0.4, max(len(losses), 2) - 0.6])
    return figure.add_scatter(
        x=x,
        y=list(losses),
        customdata=list(range(len(losses))),
        mode="lines+markers",
        line=dict(color=look("forward").fill(theme), width=2.5),
        marker=dict(size=8 if len(losses) <= 60 else 4),
        hovertemplate="step %{customdata}: %{y:.6g}<extra></extra>",
    )


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
    scale, unit = time_unit(table["window_ns"].max())
    for column, name, one in _BREAKDOWN:
        share = 100 * table[column] / table["window_ns"]
        hover = f"rank %{{y}}: %{{x:.4g}} {unit}, %{{customdata:.1f}} %<extra>{name}</extra>"
        figure.add_bar(
            x=table[column] / scale, customdata=share, hovertemplate=hover, **bar_of(table["rank"], name, one, theme)
        )
    return _rank_bars(figure, table.height, f"time, {unit}")


def sync_figure(trace: Trace, *, show: Literal["time", "bandwidth"] = "time", theme: Theme = "light") -> Chart:
    """Every collective and message: its bytes, and the time it took once all its ranks had come, or its bandwidth."""
    title, axis_title, column, unit = _SYNC_SHOWN[show]
    figure, table = blank_chart(title, trace, theme), analysis.bandwidth(trace)
    timed = table.filter((pl.col("transfer_ns") > 0) & (pl.col("size_bytes") > 0))
    if timed.is_empty():
        return say_instead(figure, f"No sync of this trace has bytes and a duration. {_no_sync_times(trace, table)}")
    kinds = timed.select("axis", "op").unique().sort("axis", "op").rows()
    for number, (axis, op) in enumerate(kinds):
        own = timed.filter((pl.col("axis") == axis) & (pl.col("op") == op))
        figure.add_scatter(
            x=own["size_bytes"],
            y=own[column] / unit,
            customdata=np.column_stack([own["transfer_ns"] / 1000, own["bus_bytes_s"] / 1e6]),
            mode="markers",
            name=f"{axis} {'message' if op == 'send' else op}",
            marker=dict(size=9, symbol=_SYMBOLS[number % len(_SYMBOLS)], line=dict(width=1), opacity=0.75),
            hovertemplate="%{x:,} bytes in %{customdata[0]:,.4g} µs, %{customdata[1]:,.4g} MB/s on the wire",
        )
    figure.update_xaxes(title="bytes of the whole tensor", **_log_axis(timed["size_bytes"]))
    figure.update_yaxes(title=axis_title, **_log_axis(timed[column] / unit))
    left_out = table.height - timed.height
    legend_below(figure.update_layout(height=480))
    return _remark(figure, f"{left_out:,} syncs that took no time are left out.") if left_out else figure


def _no_sync_times(trace: Trace, table: pl.DataFrame) -> str:
    """Why, given `analysis.bandwidth` of the trace."""
    if table.height:
        return "Its syncs took no set time: set `link` in the Plan."
    if trace.of("sync").height:
        return "Other ranks of its syncs are not in it, so when they came is not known."
    return "It holds no syncs."


_SYNC_SHOWN = {
    "time": ("Sync time against bytes", "time, µs", "transfer_ns", 1e3),
    "bandwidth": ("Bandwidth of syncs against bytes", "on the wire, MB/s", "bus_bytes_s", 1e6),
}
"""Title, title of the upright axis, column of `analysis.bandwidth`, and its unit."""


def memory_figure(trace: Trace, *, limit_bytes: int | None = None, theme: Theme = "light") -> Chart:
    """What each rank held at its peak, and a limit where one is given."""
    figure, lanes = blank_chart("Memory at each rank's peak", trace, theme), analysis.memory_lanes(trace)
    if lanes.is_empty():
        return say_instead(figure, "This trace does not say what ranks held: set record='memory' in the Plan.")
    total = pl.sum_horizontal(HELD)
    peaks = lanes.with_columns(total.alias("total")).sort("total", descending=True, maintain_order=True)
    peaks = peaks.unique("rank", keep="first", maintain_order=True).sort("rank")
    scale, unit = size_unit(max(peaks["total"].max(), limit_bytes or 0))
    for column, one in zip(HELD, HELD_LOOKS):
        hover = f"rank %{{y}}: %{{x:.4g}} {unit}<extra>{one.label}</extra>"
        figure.add_bar(x=peaks[column] / scale, hovertemplate=hover, **bar_of(peaks["rank"], one.label, one, theme))
    if limit_bytes:
        figure.add_vline(
            limit_bytes / scale, line=dict(color=BAD[theme], width=2), annotation=dict(text="limit", yanchor="bottom")
        )
    return _rank_bars(figure, peaks.height, f"memory, {unit}")


def bar_of(places: pl.Series, name: str, one: Look, theme: Theme) -> dict[str, Any]:
    """A horizontal bar for every place, with a look's colour and pattern."""
    pattern = dict(shape=_PATTERNS[one.pattern], fgcolor=one.text(theme), fgopacity=0.3, size=7, fillmode="overlay")
    marker = dict(color=one.fill(theme), pattern=pattern, line=dict(width=0.5, color=one.text(theme)))
    return dict(y=places, name=name, orientation="h", marker=marker)


def _rank_bars(figure: Chart, num_ranks: int, title: str) -> Chart:
    """Bars of ranks from the top, piled up; a legend below, where it can wrap without covering the title."""
    figure.update_yaxes(title="rank", autorange="reversed", dtick=1 if num_ranks <= 32 else None, showgrid=False)
    figure.update_xaxes(title=title)
    height = 250 + max(28 * min(num_ranks, 16), min(8 * num_ranks, 1600))
    return legend_below(figure.update_layout(barmode="stack", bargap=0.25, height=height))


def legend_below(figure: Chart) -> Chart:
    """A legend below the plot, where it can wrap without covering anything."""
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


def time_unit(longest_ns: float) -> tuple[float, str]:
    """(ns in it, its name) of the unit that suits times up to `longest_ns`."""
    return next(((ns, unit) for unit, ns in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if longest_ns >= 2 * ns), (1, "ns"))


def size_unit(most_bytes: float) -> tuple[int, str]:
    sizes = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
    return next(((size, unit) for unit, size in sizes if most_bytes >= size), (1, "bytes"))
