"""A chart: plotly's figure in our looks, which on a page takes the page's theme.

In: a title and a `Trace`, or a figure. Out: a `Chart` to add data to; displayed, it is a `ChartView`, which
`static/chart.js` draws with the plotly that the page already has. A chart weighs its own data, not plotly's 5 MB. It
loads nothing from elsewhere and offers no button that would send the data away.
"""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import anywidget
import plotly.graph_objects as go
import traitlets

from labkit.trace import Trace
from labkit.view.esm import stylesheet, widget_module
from labkit.view.player import source_badge
from labkit.view.theme import HELD_LOOKS, LOOKS, Theme, template, text_on

NOTE_WIDTH = 44
"""Characters in a line of a note."""

MIME = "application/vnd.plotly.v1+json"

CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,  # on by default: a button that uploads the chart
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}

BAD = {"light": "#c62f2f", "dark": "#e2686b"}
"""Limits and errors."""


class Chart(go.Figure):
    """A figure that displays in the page's theme, and as plotly's own mime type where no kernel is."""

    _ipython_display_ = None  # plotly's own comes first and shows the figure with its defaults, upload button included
    _repr_html_ = None  # carries all of plotly.js, 5 MB

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, validate: bool = True, **kwargs: Any) -> dict:
        view = chart_widget(self)._repr_mimebundle_() or {}
        return {**(view[0] if isinstance(view, tuple) else view), **mime_bundle(self)}


class ChartView(anywidget.AnyWidget):
    """A figure on a page: light or dark as the page is, also when that changes."""

    _esm = widget_module("markup", "chart")
    _css = stylesheet("player", "chart")

    figure = traitlets.Dict().tag(sync=True)  # data, layout, config; drawn for a light page or a dark one
    templates = traitlets.Dict().tag(sync=True)  # plotly template by theme
    colours = traitlets.List().tag(sync=True)  # [light, dark, text on light, text on dark] of every colour that has two
    label = traitlets.Unicode().tag(sync=True)  # what a screen reader says
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


def chart_widget(figure: go.Figure) -> ChartView:
    """A figure as a widget."""
    return ChartView(
        figure=plain_figure(figure),
        templates={theme: template(theme).to_plotly_json() for theme in ("light", "dark")},
        colours=colour_pairs(),
        label=_label(figure),
    )


def plain_figure(figure: go.Figure) -> dict[str, Any]:
    """A figure as plain data, to be sent to a page."""
    return {**json.loads(figure.to_json()), "config": CONFIG}


def colour_pairs() -> list[tuple[str, str, str, str]]:
    """Light and dark of all fills of the theme, each light colour once, and the text colours that read on them."""
    pairs = {look.light: look.dark for look in (*HELD_LOOKS, *LOOKS)} | {BAD["light"]: BAD["dark"]}
    return [(light, dark, text_on(light), text_on(dark)) for light, dark in pairs.items()]


def mime_bundle(figure: go.Figure) -> dict[str, Any]:
    """What a notebook stores to show the figure without a kernel."""
    return {MIME: {**figure.to_plotly_json(), "config": CONFIG}, "text/plain": "a plotly figure"}


def blank_chart(title: str, trace: Trace | Sequence[Trace], theme: Theme) -> Chart:
    """An empty chart with its title and, below it in small, what was run and where the times come from."""
    traces = [trace] if isinstance(trace, Trace) else trace
    lines = dict.fromkeys(f"{one.title.rpartition(' (')[0]} · times: {source_badge(one.meta)}" for one in traces)
    subtitle = "; ".join(lines) if len(lines) <= 2 else f"{len(traces)} runs · times: {_sources(traces)}"
    return Chart(layout=dict(template=template(theme), title=dict(text=title, subtitle=dict(text=subtitle))))


def say_instead(figure: Chart, note: str) -> Chart:
    """A note in place of data, in lines that a narrow page holds."""
    figure.update_xaxes(visible=False).update_yaxes(visible=False)
    figure.add_annotation(text="<br>".join(textwrap.wrap(note, NOTE_WIDTH)), showarrow=False, font_size=14)
    return figure


def _sources(traces: Sequence[Trace]) -> str:
    return ", ".join(dict.fromkeys(source_badge(trace.meta) for trace in traces))


def _label(figure: go.Figure) -> str:
    title = figure.layout.title
    return ". ".join(text for text in (title.text, title.subtitle.text) if text) or "chart"
