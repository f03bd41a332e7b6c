"""Pipelines beside each other: every block where its work was, every gap with its sentence, the bubble."""

import example_traces as examples
import polars as pl
import pytest

from labkit import analysis, explain
from labkit.view.chart import colour_pairs
from labkit.view.pipeline_figures import bubble_figure, schedules_figure

MS = 1_000_000


def bars(figure, name):
    return next(one for one in figure.data if one.name == name)


def test_blocks_lie_where_the_work_was_on_one_axis_for_all():
    short, long = examples.one_f_one_b(2, 4), examples.one_f_one_b(4, 8)
    figure = schedules_figure({"short": short, "long": long})
    forward = bars(figure, "forward")
    assert len(forward.x) == 2 * 4 + 4 * 8 and set(forward.x) == {20.0}  # ms
    assert min(forward.base) == 0
    rows = sorted(set(forward.y))
    assert rows == [0, 1, 3.5, 4.5, 5.5, 6.5]  # two ranks, room for a name, four ranks
    assert figure.layout.yaxis.ticktext == ("rank 0", "rank 1", "rank 0", "rank 1", "rank 2", "rank 3")
    assert forward.hovertext[0].startswith("F0 on rank 0, stage 0")


def test_blocks_and_bubble_fill_each_rank_and_the_gaps_say_why():
    trace = examples.one_f_one_b(4, 8)
    figure = schedules_figure({"1F1B": trace})
    bubble = bars(figure, "bubble")
    stage = trace.of("stage_forward", "stage_backward")
    whole = (stage["end_ns"].max() - stage["start_ns"].min()) / MS
    for rank in range(4):
        idle = sum(x for x, y in zip(bubble.x, bubble.y) if y == rank)
        worked = stage.filter(pl.col("rank") == rank).select((pl.col("end_ns") - pl.col("start_ns")).sum()).item() / MS
        assert idle + worked == pytest.approx(whole, rel=0.02)
    told = " ".join(bubble.hovertext).replace("<br>", " ")
    assert explain.explain(trace).sort("duration_ns")["sentence"][-1] in told
    assert "the pipeline is filling" in told


def test_other_steps_and_other_traces_leave_it_empty():
    figure = schedules_figure({"1F1B": examples.one_f_one_b()}, step=7)
    assert not figure.data and "step 7" in figure.layout.annotations[0].text
    assert not schedules_figure({"data parallel": examples.empty()}).data


def test_the_bubble_stands_beside_the_one_on_paper():
    trace = examples.one_f_one_b()
    trace = trace.with_meta(plan=trace.meta.plan | {"microbatches": 8, "virtual": 1})
    run, paper = bubble_figure({"1F1B": trace, "no pipeline": examples.data_parallel()}).data
    assert list(run.y) == ["1F1B"] and run.x[0] == pytest.approx(100 * analysis.bubble(trace).of_total)
    assert paper.x[0] == pytest.approx(100 * 3 / 11) and paper.x[0] < run.x[0]  # its messages take time


def test_without_a_pipeline_there_is_no_bubble():
    assert "holds a pipeline" in bubble_figure({"one": examples.data_parallel()}).layout.annotations[0].text


def test_every_colour_has_its_like_in_the_dark():
    known = {one[0] for one in colour_pairs()}
    for figure in (schedules_figure({"a": examples.one_f_one_b()}), bubble_figure({"a": examples.one_f_one_b()})):
        for one in figure.data:
            used = {one.marker.color, one.marker.line.color} if one.type == "bar" else {one.marker.line.color}
            assert used <= known | {"#0b1220", "#ffffff"}
