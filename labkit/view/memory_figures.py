"""Charts of memory over several plans: what each really held, and what models too big to run here would need.

In: traces, or computed `costs.Memory`, by name. Out: a `Chart` of one bar for each name, piled up by kind.
"""

from collections.abc import Mapping

import polars as pl

from labkit.analysis import most_held
from labkit.analysis.memory import HELD
from labkit.costs import Memory
from labkit.trace import Trace
from labkit.view.chart import BAD, Chart, blank_chart, say_instead
from labkit.view.figures import bar_of, legend_below, size_unit
from labkit.view.theme import HELD_LOOKS, Look, Theme, template

_COMPUTED = ("param_bytes", "grad_bytes", "optimizer_bytes", "activation_bytes")


def held_figure(traces: Mapping[str, Trace], *, theme: Theme = "light") -> Chart:
    """For each run the most bytes of every kind that one of its ranks held. The maxima need not fall together."""
    figure = blank_chart("Most bytes of each kind on one rank", list(traces.values()), theme)
    held = {name: most_held(trace) for name, trace in traces.items()}
    if not any(sum(kinds.values()) for kinds in held.values()):
        return say_instead(figure, "These traces do not say what ranks held: set record='memory' in the Plan.")
    return _piles(figure, list(held), [[held[name][kind] for name in held] for kind in HELD], theme)


def fit_figure(memories: Mapping[str, Memory], limit_bytes: float, *, theme: Theme = "light") -> Chart:
    """For each plan what its fullest rank needs on the device, beside what the device has. Computed, not measured."""
    title = dict(text="Memory of the fullest rank", subtitle=dict(text="computed from sizes; nothing was run"))
    figure = Chart(layout=dict(template=template(theme), title=title))
    piles = [[getattr(memory, kind) for memory in memories.values()] for kind in _COMPUTED]
    scale, _ = size_unit(max(limit_bytes, *(memory.total_bytes for memory in memories.values())))
    figure.add_vline(
        limit_bytes / scale,
        line=dict(color=BAD[theme], width=2),
        annotation=dict(text="device memory", yanchor="bottom"),
    )
    return _piles(figure, list(memories), piles, theme, limit_bytes)


def _piles(figure: Chart, names: list[str], piles: list[list[float]], theme: Theme, at_least: float = 0) -> Chart:
    """A bar for each name: `piles` holds the bytes of every kind, in the order of HELD_LOOKS."""
    scale, unit = size_unit(max(at_least, *map(sum, zip(*piles))))
    for sizes, look in zip(piles, HELD_LOOKS):
        figure.add_bar(x=[size / scale for size in sizes], **_bar(names, look, unit, theme))
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True)
    figure.update_xaxes(title=unit)
    return legend_below(figure.update_layout(barmode="stack", bargap=0.3, height=170 + 34 * len(names)))


def _bar(names: list[str], look: Look, unit: str, theme: Theme) -> dict:
    hover = f"%{{y}}: %{{x:.4g}} {unit}<extra>{look.label}</extra>"
    return dict(hovertemplate=hover, **bar_of(pl.Series(names), look.label, look, theme))
