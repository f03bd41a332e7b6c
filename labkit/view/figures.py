"""Charts: pure functions from a trace to a plotly figure. No `.show()`, and no numbers worked out while drawing.

In: a `Trace`. Out: a `Chart`, an ordinary `go.Figure` that, displayed in a notebook, loads nothing from elsewhere and
offers no button that would send the data away.
"""

from typing import Any

import plotly.graph_objects as go

from labkit.trace import Trace
from labkit.view.player import source_badge
from labkit.view.theme import Theme, look, template

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


def blank_chart(title: str, trace: Trace, theme: Theme) -> Chart:
    """An empty chart with its title and, below it in small, what was run and where the times come from."""
    what = trace.title.rpartition(" (")[0]
    subtitle = f"{what} · times: {source_badge(trace.meta)}"
    return Chart(layout=dict(template=template(theme), title=dict(text=title, subtitle=dict(text=subtitle))))


def say_instead(figure: Chart, note: str) -> Chart:
    """A note in place of data."""
    figure.update_xaxes(visible=False).update_yaxes(visible=False)
    figure.add_annotation(text=note, showarrow=False, font_size=14)
    return figure
