"""Charts of synchronization over several runs: copies that drift, what all-reduces cost.

In: Traces; numbers come from `all_reduce_costs` and `analysis.replicas`. Out: a `Chart`. Nothing is worked out while
drawing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from labkit.analysis.replicas import drift
from labkit.trace import Trace
from labkit.view.all_reduce_costs import CLOSED_FORMS, all_reduce_costs
from labkit.view.chart import Chart, blank_chart, say_instead
from labkit.view.figures import legend_below
from labkit.view.theme import Theme, look

STYLES = (("forward", "circle", "solid"), ("backward_weight", "square", "dash"), ("optimizer", "diamond", "dot"))
"""Look, symbol and dash of the first, second ... run or kind: no two differ by colour alone."""


def drift_figure(traces: Mapping[str, Trace], *, theme: Theme = "light") -> Chart:
    """How far the replicas' copies of the first weight lie apart when each step begins, a line for every run."""
    figure = blank_chart("How far the copies lie apart", [*traces.values()], theme)
    tables = {name: drift(trace) for name, trace in traces.items()}
    if all(table.is_empty() for table in tables.values()):
        return say_instead(figure, "These traces hold no values of weights: set value_limit_bytes in the Plan.")
    for style, (name, table) in zip(STYLES, tables.items()):
        own = table.filter(pl.col("weight") == table["weight"][0])
        hover = f"step %{{x}}: %{{y:.4g}}<extra>{name}</extra>"
        figure.add_scatter(x=own["step"], y=own["difference"], name=name, hovertemplate=hover, **line_of(style, theme))
    figure.update_xaxes(title="step that begins", dtick=1, rangemode="tozero")
    figure.update_yaxes(title="largest difference of a weight", rangemode="tozero")
    return legend_below(figure.update_layout(height=360))


def all_reduce_figure(
    traces: Sequence[Trace], *, show: Literal["bytes", "rounds"] = "bytes", theme: Theme = "light"
) -> Chart:
    """What all-reduces from messages cost against the number of ranks: counted points, and the closed form's curve."""
    titles = {"bytes": "What the busiest rank sends", "rounds": "Rounds, one message after the other"}
    figure, table = blank_chart(titles[show], traces, theme), all_reduce_costs(traces)
    if table.is_empty():
        return say_instead(figure, "None of these runs averaged by messages: set grad_sync ring, tree or gather.")
    column, form = {"bytes": ("sent", "sent"), "rounds": ("rounds", "rounds")}[show]
    curve_at = [2 + k / 8 for k in range(8 * (table["num_ranks"].max() - 2) + 1)]
    for style, shape in zip(STYLES, table["shape"].unique().sort()):
        own, theory = table.filter(pl.col("shape") == shape), getattr(CLOSED_FORMS[shape], form)
        curve = line_of(style, theme) | dict(mode="lines", hoverinfo="skip", showlegend=False)
        figure.add_scatter(x=curve_at, y=[theory(n) for n in curve_at], **curve)
        hover = f"%{{x}} ranks: %{{y:.4g}}<extra>{shape}, counted</extra>"
        figure.add_scatter(
            x=own["num_ranks"], y=own[column], name=shape, hovertemplate=hover, **points_of(style, theme)
        )
    figure.update_xaxes(title="ranks", tickvals=table["num_ranks"].unique().sort().to_list())
    figure.update_yaxes(title={"bytes": "times the tensor", "rounds": "rounds"}[show], rangemode="tozero")
    return legend_below(figure.update_layout(height=380))


def line_of(style: tuple[str, str, str], theme: Theme) -> dict[str, Any]:
    """A line with its points, in one of `STYLES`."""
    name, symbol, dash = style
    marker = dict(size=9, symbol=symbol)
    return dict(mode="lines+markers", line=dict(color=look(name).fill(theme), width=2.5, dash=dash), marker=marker)


def points_of(style: tuple[str, str, str], theme: Theme) -> dict[str, Any]:
    """Points only, in one of `STYLES`."""
    name, symbol, _ = style
    return dict(mode="markers", marker=dict(size=10, symbol=symbol, color=look(name).fill(theme)))
