"""Charts of predictions for machines that are not here: beside published numbers, and over thousands of GPUs.

In: Predictions, or a table of `predict_cases`. Out: a `Chart`, which says that nothing was run.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from labkit.predict import Prediction
from labkit.view.chart import Chart
from labkit.view.figures import bar_of, legend_below
from labkit.view.theme import Theme, look, template

PARTS = {
    "compute": ("forward", "compute"),
    "recompute": ("recompute", "recompute"),
    "tp_sync": ("sync", "tensor parallel syncs"),
    "p2p": ("backward_input", "messages between stages"),
    "pp_bubble": ("idle", "pipeline bubble"),
    "dp_sync_exposed": ("wait", "gradient sync, exposed"),
    "optimizer": ("optimizer", "optimizer"),
}
"""Look and name of every part of a predicted step."""

LABELS = {"tflops_per_gpu": "TFLOP/s per GPU", "step_s": "seconds per step"}
"""Measured columns in the field's words."""


def published_figure(table: pl.DataFrame, names: Sequence[str], column: str, *, theme: Theme = "light") -> Chart:
    """`column` as published beside its prediction, a pair of bars for each row; the error stands at the bar's end."""
    label = LABELS.get(column, column.replace("_", " "))
    figure = _chart("Predicted beside published", f"{label}; nothing was run here", theme)
    places, errors = pl.Series(list(names)), table[f"error_percent {column}"]
    figure.add_bar(
        x=table[f"predicted {column}"],
        text=[f"{error:+.1f} %" for error in errors],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{x:.1f}<extra>predicted</extra>",
        **bar_of(places, "predicted", look("recompute"), theme),
    )
    published = bar_of(places, "published", look("forward"), theme)
    figure.add_bar(x=table[column], hovertemplate="%{y}: %{x:.1f}<extra>published</extra>", **published)
    most = max(table[column].max(), table[f"predicted {column}"].max())
    figure.update_xaxes(title=label, range=[0, 1.3 * most]).update_yaxes(autorange="reversed")  # room for the errors
    return legend_below(figure.update_layout(barmode="group", bargap=0.3, height=200 + 56 * table.height))


def spent_figure(predictions: Mapping[str, Prediction], *, theme: Theme = "light") -> Chart:
    """What share of a predicted step goes into what, a bar for each prediction."""
    figure, places = _chart("Where the time goes", "predicted; nothing was run", theme), pl.Series(list(predictions))
    for part, (name, label) in PARTS.items():
        shares = [100 * one.breakdown[part] / one.step_s for one in predictions.values()]
        if max(shares):
            hover = f"%{{y}}: %{{x:.1f}} %<extra>{label}</extra>"
            figure.add_bar(x=shares, hovertemplate=hover, **bar_of(places, label, look(name), theme))
    figure.update_yaxes(autorange="reversed", showgrid=False).update_xaxes(title="of the step, %")
    return legend_below(figure.update_layout(barmode="stack", bargap=0.3, height=210 + 34 * len(predictions)))


def utilization_figure(curves: Mapping[str, Sequence[Prediction]], *, theme: Theme = "light") -> Chart:
    """Model FLOPs utilization against the number of GPUs, a line for each name."""
    figure = _chart("How well the GPUs are used", "predicted; nothing was run", theme)
    styles = (("forward", "circle", "solid"), ("backward_weight", "square", "dash"), ("optimizer", "diamond", "dot"))
    for (name, curve), (kind, symbol, dash) in zip(curves.items(), styles):
        figure.add_scatter(
            x=[one.training.num_ranks for one in curve],
            y=[100 * one.mfu for one in curve],
            name=name,
            mode="lines+markers",
            line=dict(color=look(kind).fill(theme), width=2.5, dash=dash),
            marker=dict(size=9, symbol=symbol),
            hovertemplate="%{x:,} GPUs: %{y:.1f} %",
        )
    ranks = sorted({one.training.num_ranks for curve in curves.values() for one in curve})
    marked = ranks[:: max(1, len(ranks) // 3)]  # more would run into each other on a narrow page
    figure.update_xaxes(title="GPUs", type="log", tickvals=marked, ticktext=[f"{number:,}" for number in marked])
    figure.update_yaxes(title="model FLOPs, % of the peak", rangemode="tozero")
    return legend_below(figure.update_layout(height=380))


def _chart(title: str, subtitle: str, theme: Theme) -> Chart:
    return Chart(layout=dict(template=template(theme), title=dict(text=title, subtitle=dict(text=subtitle))))
