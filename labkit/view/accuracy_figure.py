"""How far predictions are off: a dot for every number that was predicted and is known.

In: tables of (case, relative error). Out: a `Chart`. Nothing is worked out while drawing.
"""

import textwrap
from collections.abc import Mapping, Sequence

from labkit.view.chart import NOTE_WIDTH, Chart
from labkit.view.figures import legend_below
from labkit.view.theme import Theme, look, template

_GOLDEN = 0.618034
_SPREAD = 0.44
"""Height over which the dots of one table are spread, so that equal errors do not cover each other."""

_ROW_PX = 78

Cases = Sequence[tuple[str, float]]
"""(case, (predicted - known) / known)"""


def accuracy_figure(groups: Mapping[str, Mapping[str, Cases]], *, theme: Theme = "light") -> Chart:
    """Groups of tables ("own runs", "published tables"), each table a line of dots at the errors of its rows."""
    figure = Chart(layout=dict(template=template(theme), title=dict(text="Every prediction and its error")))
    lines = [(group, table, cases) for group, tables in groups.items() for table, cases in tables.items() if cases]
    looks = dict(zip(groups, (("forward", "circle"), ("optimizer", "diamond")), strict=False))
    shown: set[str] = set()
    for k, (group, table, cases) in enumerate(lines):
        (name, symbol), place = looks[group], len(lines) - 1 - k
        figure.add_scatter(
            x=[error for _, error in cases],
            y=[place + _SPREAD * ((k * _GOLDEN) % 1 - 0.5) for k in range(len(cases))],
            customdata=[case for case, _ in cases],
            mode="markers",
            marker=dict(color=look(name).fill(theme), symbol=symbol, size=8, opacity=0.7),
            name=group,
            legendgroup=group,
            showlegend=group not in shown,
            hovertemplate=f"%{{customdata}}: %{{x:+.1%}}<extra>{table}</extra>",
        )
        shown.add(group)
        _caption(figure, place, f"{table} ·\u00a0{len(cases)}")
    figure.update_xaxes(title="too low  ·  error  ·  too high", tickformat="+.0%", zerolinewidth=2)
    figure.update_yaxes(visible=False, range=[-0.4, len(lines) - 0.1], fixedrange=True)
    return legend_below(figure.update_layout(height=190 + _ROW_PX * len(lines), margin=dict(l=8, r=12)))


def _caption(figure: Chart, place: int, text: str) -> None:
    """What a line of dots is of and how many they are, above it, in lines that a narrow page holds."""
    lines = textwrap.wrap(text, NOTE_WIDTH)
    figure.add_annotation(
        text="<br>".join(lines), x=0, xref="paper", xanchor="left", y=place + 0.28, yanchor="bottom", align="left",
        showarrow=False, font_size=12,
    )  # fmt: skip
