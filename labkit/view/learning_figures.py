"""Charts of learning: how many images a network gets right, and how noisy its gradients are.

In: Traces with captured weights and gradients. Out: a `Chart`. Nothing is worked out while drawing.
"""

from collections.abc import Mapping
from typing import Literal

from labkit.analysis.gradient_noise import gradient_noise
from labkit.analysis.learning import learning
from labkit.trace import Trace
from labkit.view.chart import Chart, blank_chart, say_instead
from labkit.view.figures import legend_below, time_unit
from labkit.view.theme import Theme, look

_LOOKS = ("backward_weight", "forward", "optimizer", "sync")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up")


def accuracy_figure(
    runs: Mapping[str, Trace], *, by: Literal["images", "time"] = "images", theme: Theme = "light"
) -> Chart:
    """Share of all digit images that each run gets right, against the images it has seen or the time it took."""
    figure = blank_chart(f"Images taken for the right digit, against {by}", list(runs.values()), theme)
    try:
        tables = {name: learning(trace) for name, trace in runs.items()}
    except ValueError as error:
        return say_instead(figure, f"{error}.")
    longest = max((table["time_ns"].max() or 0 for table in tables.values()), default=0)
    if by == "time" and not longest:
        return say_instead(figure, "These traces do not say when their steps ended: set record='compute' in the Plan.")
    scale, unit = time_unit(longest) if by == "time" else (1, "")
    for number, (name, table) in enumerate(tables.items()):
        figure.add_scatter(
            x=table["images"] if by == "images" else table["time_ns"] / scale,
            y=100 * table["accuracy"],
            customdata=table["update"],
            mode="lines+markers",
            name=name,
            line=dict(color=look(_LOOKS[number % len(_LOOKS)]).fill(theme), width=2.5),
            marker=dict(size=8, symbol=_SYMBOLS[number % len(_SYMBOLS)]),
            hovertemplate="after update %{customdata}: %{y:.1f} % right<extra></extra>",
        )
    figure.update_xaxes(title=f"time, {unit}" if by == "time" else "images seen, each as often as it was used")
    figure.update_xaxes(type="log", dtick=1).update_yaxes(title="right, %", range=[0, 100])
    return legend_below(figure.update_layout(height=400))


def noise_figure(trace: Trace, *, step: int = 0, theme: Theme = "light") -> Chart:
    """How far gradients of small batches lie from the whole step's, against their size, beside what theory expects."""
    figure, table = blank_chart("Gradient noise", trace, theme), gradient_noise(trace, step=step)
    if table.is_empty():
        how = "run a Plan with microbatches of 2 or more and value_limit_bytes set."
        return say_instead(figure, f"This trace holds no gradients of single microbatches: {how}")
    figure.add_scatter(
        x=table["batch"],
        y=100 * table["expected"],
        mode="lines",
        name="expected from the smallest",
        line=dict(color=look("zero_grad").fill(theme), width=2, dash="dash"),
        hovertemplate="batch %{x}: %{y:.1f} %<extra>expected</extra>",
    )
    figure.add_scatter(
        x=table["batch"],
        y=100 * table["noise"],
        customdata=table["num_batches"],
        mode="markers",
        name="these gradients",
        marker=dict(size=10, color=look("forward").fill(theme)),
        hovertemplate="batch %{x}: %{y:.1f} %, over %{customdata} batches<extra></extra>",
    )
    figure.update_xaxes(title="images in a batch", type="log", tickvals=table["batch"].to_list())
    figure.update_yaxes(title="distance from the whole gradient, % of it", rangemode="tozero")
    return legend_below(figure.update_layout(height=400))
