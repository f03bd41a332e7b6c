"""The moment a run was stopped: what every rank was at, since when, and who had noticed that something was wrong.

In: `RunError.ranks`. Out: a `Chart`. These are the parent's observations, not events of a trace.
"""

from collections.abc import Sequence

from labkit.faults import LastSeen
from labkit.view.chart import BAD, Chart, blank_chart, say_instead
from labkit.view.figures import legend_below, time_unit
from labkit.view.theme import Theme, look

_BAR, _TEXT_ABOVE = 0.3, 0.36


def survivors_figure(ranks: Sequence[LastSeen], *, theme: Theme = "light") -> Chart:
    """A bar from the start of each rank's last event to the stop; marks where a rank ended or noticed."""
    figure = blank_chart("Until the run was stopped", [], theme)
    figure.update_layout(title_subtitle_text="times: as the process that started the ranks saw them")
    if not ranks:
        return say_instead(figure, "No rank had begun.")
    scale, unit = time_unit(1e9 * max(one.for_s for one in ranks))
    per_s = 1e9 / scale
    longest = per_s * max(one.for_s for one in ranks)
    figure.add_bar(
        orientation="h",
        base=[-per_s * one.for_s for one in ranks],
        x=[per_s * one.for_s for one in ranks],
        y=[one.rank for one in ranks],
        width=_BAR,
        name="in its last event",
        customdata=[one.doing for one in ranks],
        marker=dict(color=look("wait").fill(theme), line=dict(color=look("sync").fill(theme), width=1)),
        hovertemplate=f"rank %{{y}}, for %{{x:.4g}} {unit}: %{{customdata}}<extra></extra>",
    )
    figure.add_scatter(
        mode="text",
        x=[-longest] * len(ranks),
        y=[one.rank - _TEXT_ABOVE for one in ranks],
        text=[_in_short(one.doing) for one in ranks],
        textposition="middle right",
        hoverinfo="skip",
        showlegend=False,
    )
    ended = [one for one in ranks if one.ended_s is not None]
    _marks(figure, "ended", "x", BAD[theme], [one for one in ended if not one.noticed], per_s)
    _marks(figure, "noticed: lost its connection", "diamond", look("sync").fill(theme),
           [one for one in ended if one.noticed], per_s)  # fmt: skip
    figure.update_xaxes(title=f"before the stop, {unit}", range=[-1.03 * longest, 0.06 * longest])
    figure.update_yaxes(
        tickvals=[one.rank for one in ranks], ticktext=[f"rank {one.rank}" for one in ranks],
        range=[len(ranks) - 0.5, -0.7], showgrid=False,
    )  # fmt: skip
    return legend_below(figure.update_layout(height=150 + 62 * len(ranks)))


def _in_short(doing: str) -> str:
    """Without layer and microbatch, so that a narrow page holds it."""
    words = doing.split(", ")
    return ", ".join(dict.fromkeys((words[0], words[-1])))


def _marks(figure: Chart, name: str, symbol: str, colour: str, ranks: list[LastSeen], per_s: float) -> None:
    if ranks:
        figure.add_scatter(
            mode="markers",
            x=[-per_s * one.ended_s for one in ranks],
            y=[one.rank for one in ranks],
            customdata=[one.end[:90] for one in ranks],
            name=name,
            marker=dict(symbol=symbol, size=12, color=colour, line=dict(color="#ffffff", width=1)),
            hovertemplate="rank %{y}: %{customdata}<extra></extra>",
        )
