"""Pipelines beside each other: the order of their work on one time axis, their bubbles hatched and explained.

In: Traces by name. Out: a `Chart`. Why a rank stands still is told by `explain`, how much that is by `analysis`.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from labkit import analysis, explain
from labkit.analysis.ideal import ideal_bubble
from labkit.event import STAGE_KINDS
from labkit.trace import Trace
from labkit.view.chart import Chart, blank_chart, say_instead
from labkit.view.figures import bar_of, legend_below, time_unit
from labkit.view.theme import LOOK_OF_KIND, Theme, look

HOVER_WIDTH = 48  # characters in a line of a sentence
_ROW, _BETWEEN = 25, 1.5  # pixels of a rank's row; rows between two pipelines, where the name stands


def schedules_figure(runs: Mapping[str, Trace], *, step: int = 0, theme: Theme = "light") -> Chart:
    """One step of each pipeline, a row for every rank, all on one time axis.

    Blocks are the work of a stage on a microbatch. Hatched is the time in which a rank stood still; pointing at it
    tells whom it waited for, and why.
    """
    figure = blank_chart(f"The same batch in {len(runs)} orders", list(runs.values()), theme)
    drawn = {name: _one(trace, step) for name, trace in runs.items()}
    drawn = {name: one for name, one in drawn.items() if not one.work.is_empty()}
    if not drawn:
        return say_instead(figure, f"None of these traces holds a pipeline's work in step {step}.")
    scale, unit = time_unit(max(one.length_ns for one in drawn.values()))
    tops, row = {}, 0.0
    for name, one in drawn.items():
        tops[name] = row
        row += one.num_ranks + _BETWEEN
        _name_above(figure, f"<b>{name}</b> · {_told(runs[name])}", tops[name])
    for kind, label in _labels(drawn).items():
        _blocks(
            figure,
            [(tops[name], one.work.filter(pl.col("look") == kind)) for name, one in drawn.items()],
            kind,
            label,
            scale,
            theme,
        )
    _blocks(figure, [(tops[name], one.gaps) for name, one in drawn.items()], "idle", "bubble", scale, theme)
    places = [(tops[name] + rank, f"rank {rank}") for name, one in drawn.items() for rank in range(one.num_ranks)]
    figure.update_yaxes(range=[row - _BETWEEN - 0.4, -1.4], tickvals=[at for at, _ in places], showgrid=False)
    figure.update_yaxes(ticktext=[text for _, text in places], zeroline=False)
    figure.update_xaxes(title=f"time in the step, {unit}", zeroline=False)
    return legend_below(figure.update_layout(barmode="overlay", bargap=0.12, height=int(160 + _ROW * (row + 1))))


def bubble_figure(runs: Mapping[str, Trace], *, theme: Theme = "light") -> Chart:
    """The bubble each run had, a bar, beside the one its schedule cannot avoid, a line across it."""
    figure = blank_chart("Bubble: idle share of the total time", list(runs.values()), theme)
    found = {name: analysis.bubble(trace) for name, trace in runs.items()}
    found = {name: 100 * one.of_total for name, one in found.items() if one}
    if not found:
        return say_instead(figure, "None of these traces holds a pipeline.")
    ideal = {name: ideal_bubble(runs[name]) for name in found}
    figure.add_bar(
        x=list(found.values()),
        hovertemplate="%{y}: %{x:.1f} % of the time<extra>the run</extra>",
        **bar_of(pl.Series(list(found)), "the run", look("recompute"), theme),
    )
    figure.add_scatter(
        x=[None if one is None else 100 * one for one in ideal.values()],
        y=list(found),
        mode="markers",
        name="its schedule, on paper",
        marker=dict(symbol="line-ns", size=24, line=dict(width=4, color=look("backward_weight").fill(theme))),
        hovertemplate="%{y}: %{x:.1f} % cannot be avoided<extra>the schedule</extra>",
    )
    figure.update_xaxes(title="of the total time, %", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return legend_below(figure.update_layout(height=190 + 40 * len(found), bargap=0.35))


@dataclass(frozen=True)
class _Drawn:
    """One pipeline's step: blocks and gaps with start, length (ns since its first work) and hover text."""

    num_ranks: int
    length_ns: int
    work: pl.DataFrame
    gaps: pl.DataFrame


def _one(trace: Trace, step: int) -> _Drawn:
    work = trace.of(*STAGE_KINDS).filter(pl.col("step") == step)
    kind = pl.col("kind").cast(pl.String)
    origin, end = work["start_ns"].min() or 0, work["end_ns"].max() or 0
    names = {str(kind): name for kind, name in LOOK_OF_KIND.items()}
    short = {name: look(name).short for name in names.values()}
    work = work.with_columns(kind.replace_strict(names, default="forward").alias("look"))
    microbatch = pl.concat_str([pl.col("look").replace_strict(short, default=""), pl.col("microbatch")])
    where = pl.format("rank {}, stage {}", "rank", "stage")
    told = pl.format("{} on {}: {} ms", microbatch, where, ((pl.col("end_ns") - pl.col("start_ns")) / 1e6).round(1))
    inside = (pl.col("end_ns") > origin) & (pl.col("start_ns") < end)  # some count with the step before
    gaps = explain.explain(trace).filter(inside).with_columns(pl.col("start_ns", "end_ns").clip(origin, end))
    sentence = pl.col("sentence").map_elements(lambda text: "<br>".join(textwrap.wrap(text, HOVER_WIDTH)), pl.String)
    num_ranks = (work["rank"].max() or 0) + 1
    return _Drawn(num_ranks, end - origin, _placed(work, origin, told, "look"), _placed(gaps, origin, sentence))


def _placed(table: pl.DataFrame, origin: int, told: pl.Expr, *more: str) -> pl.DataFrame:
    start, length = pl.col("start_ns") - origin, pl.col("end_ns") - pl.col("start_ns")
    return table.select("rank", start.alias("start"), length.alias("length"), told.alias("told"), *more)


def _labels(drawn: Mapping[str, _Drawn]) -> dict[str, str]:
    """The looks that occur, in the theme's order, and what each is called."""
    seen = {name for one in drawn.values() for name in one.work["look"].unique()}
    return {name: look(name).label for name in dict.fromkeys(LOOK_OF_KIND.values()) if name in seen}


def _blocks(
    figure: Chart, tables: list[tuple[float, pl.DataFrame]], kind: str, label: str, scale: float, theme: Theme
) -> None:
    """One kind of block of all pipelines, as one set of bars."""
    table = pl.concat([rows.with_columns((pl.col("rank") + top).alias("row")) for top, rows in tables])
    bar = bar_of(table["row"], label, look(kind), theme)
    bar["marker"]["line"] = dict(width=kind != "idle", color=look("idle").fill(theme))  # a line between blocks
    figure.add_bar(
        x=table["length"] / scale, base=table["start"] / scale, hovertext=table["told"], hoverinfo="text", **bar
    )


def _told(trace: Trace) -> str:
    bubble = analysis.bubble(trace)
    return f"bubble {100 * bubble.of_total:.1f} %" if bubble else "no pipeline"


def _name_above(figure: Chart, text: str, top: float) -> None:
    place = dict(x=0, xref="paper", xanchor="left", y=top - 0.55, yanchor="bottom")
    figure.add_annotation(text=text, showarrow=False, font_size=13, **place)
