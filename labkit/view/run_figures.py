"""Charts of several runs: how training scales, how efficient it is, how near a prediction comes.

In: Traces, and numbers of `labkit.comparison`. Out: a `Chart`. Nothing is worked out while drawing.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from labkit.comparison import Predicted, scaling
from labkit.trace import Trace
from labkit.view.chart import Chart, blank_chart, say_instead
from labkit.view.figures import bar_of, legend_below, time_unit
from labkit.view.theme import Theme, look


def scaling_figure(traces: Sequence[Trace], *, theme: Theme = "light") -> Chart:
    """Samples per second against ranks, beside what they would be if every rank added the same."""
    figure, table = blank_chart("Scaling", traces, theme), scaling(traces)
    if table.is_empty():
        return say_instead(figure, "None of these traces has both a step time and a batch.")
    ideal = table["samples_per_s"][0] * table["ideal"]
    figure.add_scatter(
        x=table["num_ranks"],
        y=ideal,
        mode="lines",
        name="every rank adds the same",
        line=dict(color=look("zero_grad").fill(theme), width=2, dash="dash"),
        hovertemplate="%{x} ranks: %{y:,.4g} samples/s<extra>ideal</extra>",
    )
    figure.add_scatter(
        x=table["num_ranks"],
        y=table["samples_per_s"],
        customdata=table["speedup"],
        mode="lines+markers",
        name="these runs",
        line=dict(color=look("forward").fill(theme), width=2.5),
        marker=dict(size=9),
        hovertemplate="%{x} ranks: %{y:,.4g} samples/s, %{customdata:.2f} times the first<extra></extra>",
    )
    _ranks_axis(figure, table)
    figure.update_yaxes(title="samples per second", rangemode="tozero")
    return legend_below(figure.update_layout(height=380))


def efficiency_figure(traces: Sequence[Trace], *, theme: Theme = "light") -> Chart:
    """How much of the ideal throughput each run reaches, in percent of what its ranks would do if none waited."""
    figure, table = blank_chart("Parallel efficiency", traces, theme), scaling(traces)
    if table.height < 2:
        return say_instead(figure, "Efficiency compares runs: give at least two with step times and batches.")
    figure.add_bar(
        x=[str(ranks) for ranks in table["num_ranks"]],
        y=100 * table["efficiency"],
        text=[f"{100 * share:.0f} %" for share in table["efficiency"]],
        marker=dict(color=look("forward").fill(theme)),
        hovertemplate="%{x} ranks: %{y:.1f} %<extra></extra>",
    )
    figure.add_hline(100, line=dict(color=look("zero_grad").fill(theme), width=2, dash="dash"))
    figure.update_xaxes(title="ranks", type="category").update_yaxes(title="of the ideal, %", rangemode="tozero")
    return figure.update_layout(height=340)


def predicted_figure(runs: Mapping[str, tuple[Trace, Predicted]], *, theme: Theme = "light") -> Chart:
    """What steps took beside what was predicted for them, by name of the run; the error stands at the bar's end."""
    traces = [trace for trace, _ in runs.values()]
    figure = blank_chart("Predicted beside measured", traces, theme)
    known = {name: one for name, (_, one) in runs.items() if one.error_percent is not None}
    if not known:
        reasons = "; ".join(dict.fromkeys(one.problem for _, one in runs.values() if one.problem))
        return say_instead(figure, f"None of these runs can be predicted. {reasons}")
    scale, unit = time_unit(max(max(one.step_ns, one.predicted_ns) for one in known.values()))
    table = pl.DataFrame({"name": list(known)})
    figure.add_bar(
        x=[one.predicted_ns / scale for one in known.values()],
        text=[f"{one.error_percent:+.1f} %" for one in known.values()],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"%{{y}}: %{{x:.4g}} {unit}<extra>predicted</extra>",
        **bar_of(table["name"], "predicted from the other run", look("recompute"), theme),
    )
    figure.add_bar(
        x=[one.step_ns / scale for one in known.values()],
        hovertemplate=f"%{{y}}: %{{x:.4g}} {unit}<extra>the run</extra>",
        **bar_of(table["name"], "the run itself", look("forward"), theme),
    )
    figure.update_xaxes(title=f"one step, {unit}", rangemode="tozero").update_yaxes(autorange="reversed")
    return legend_below(figure.update_layout(barmode="group", bargap=0.3, height=200 + 70 * len(known)))


def _ranks_axis(figure: Chart, table: pl.DataFrame) -> None:
    ranks = table["num_ranks"].unique().sort().to_list()
    figure.update_xaxes(title="ranks", tickvals=ranks, rangemode="tozero")
