"""A bar for every run: what a step takes, and how many samples that makes a second.

In: Traces by name. Out: a `Chart`. The numbers are `comparison.numbers`'.
"""

from collections.abc import Mapping

from labkit.comparison import numbers
from labkit.trace import Trace
from labkit.view.chart import Chart, blank_chart, say_instead
from labkit.view.figures import time_unit
from labkit.view.theme import Theme, look


def step_figure(runs: Mapping[str, Trace], *, title: str = "Time of a step", theme: Theme = "light") -> Chart:
    """What a step of each run takes; above the bar the time and, where the batch is known, samples a second."""
    figure = blank_chart(title, list(runs.values()), theme)
    found = {name: numbers(trace) for name, trace in runs.items()}
    known = {name: one for name, one in found.items() if one.step_ns}
    if not known:
        return say_instead(figure, "None of these runs says how long its steps took: set record='compute' in the Plan.")
    scale, unit = time_unit(max(one.step_ns for one in known.values()))
    times = [one.step_ns / scale for one in known.values()]
    rates = [f" · {one.samples_per_s:,.3g} samples/s" if one.samples_per_s else "" for one in known.values()]
    figure.add_bar(
        x=times,
        y=list(range(len(known))),
        orientation="h",
        width=0.45,
        marker=dict(color=look("forward").fill(theme)),
        hovertext=[f"{name}: {time:,.4g} {unit}{rate}" for name, time, rate in zip(known, times, rates)],
        hoverinfo="text",
        showlegend=False,
    )
    for place, (name, time, rate) in enumerate(zip(known, times, rates)):  # above its bar: room on a narrow page too
        above = dict(x=0, xref="paper", xanchor="left", y=place - 0.25, yanchor="bottom")
        figure.add_annotation(text=f"<b>{name}</b> · {time:,.4g} {unit}{rate}", showarrow=False, font_size=13, **above)
    figure.update_xaxes(title=f"one step, {unit}", rangemode="tozero")
    figure.update_yaxes(range=[len(known) - 0.6, -0.8], showgrid=False, showticklabels=False, zeroline=False)
    return figure.update_layout(height=130 + 56 * len(known), margin_l=20)
