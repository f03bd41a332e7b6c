"""Lesson 9 in the browser: fifty layers counted, counts against layers, the price of latency, knobs."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit.analysis import sync_totals
from labkit.replay.latency import steps_by_latency

NAME = "09_how_often_does_it_synchronize"
DEEP = labkit.Plan(layers=50, width=16, steps=3, dtype="float64", pace="forward=50ms,backward=100ms")
TEN = labkit.Plan(dp=2, layers=10, width=16, steps=1, record=("compute", "sync"))
LINES = """(chart) =>
  chart.querySelector(".js-plotly-plot").data.map((one) => [one.name, Array.from(one.x), Array.from(one.y)])"""
BARS = "(chart) => Array.from(chart.querySelector('.js-plotly-plot').data[0].x)"


def chart(page, title: str):
    found = page.locator(".labkit-chart").filter(has_text=title).last
    found.locator(".main-svg").first.wait_for()
    return found


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.full)])
def test_in_voila(voila, open_page, theme):
    page = lesson.in_voila(open_page, voila, NAME, theme=theme)
    lesson.play(page, page.locator(".labkit-timeline").nth(1))
    counted = {name: (x, y) for name, x, y in chart(page, "Syncs of a step against layers").evaluate(LINES)}
    assert counted["data parallel: 1 per step"] == ([2, 10, 26, 50], [1, 1, 1, 1])
    assert counted["tensor parallel: 1 per layer − 1"][1] == [1, 9, 25, 49]
    assert counted["pipeline, a layer a stage: 2 per layer − 2"][1] == [2, 18, 50, 98]
    assert counted["tensor parallel, transformer: 4 per layer + 2"][1] == [10, 42, 106, 202]
    lines = {name: y for name, _, y in chart(page, "Time of a step against the latency").evaluate(LINES)}
    assert lines["pipeline"][-1] - lines["pipeline"][0] == pytest.approx(98, abs=1)  # ms, for 1 ms of latency
    assert lines["data parallel"][-1] - lines["data parallel"][0] == pytest.approx(1, abs=0.1)
    free, slow = steps_by_latency(labkit.recall(DEEP.vary(tp=2, tensor="by_hand")), (0, 0.001))
    assert (slow - free) / 1e6 == pytest.approx(49, abs=1)
    assert lesson.answer(page, "links of 1 ms instead of none", f"{(slow - free) / 1e6:.0f}").startswith("Right.")
    assert lesson.answer(page, "A pipeline of 100 layers", "198").startswith("Right.")
    lesson.keep_picture(page, f"{NAME}_{theme}")


def test_microbatches_cost_tensor_parallelism_more_syncs(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, width=390)
    lesson.turn(page, "microbatches", 2)  # 1, 2, 4
    page.wait_for_timeout(500)
    assert chart(page, "Traffic of each axis").evaluate(BARS) == [1]
    lesson.turn(page, "tp", 1)
    page.locator(".labkit-timeline").last.get_by_text("digits, dp 2 x tp 2").wait_for()
    totals = sync_totals(labkit.recall(TEN.vary(tp=2, microbatches=4)))
    assert (
        chart(page, "Traffic of each axis").evaluate(BARS) == [totals["tp"]["count"], totals["dp"]["count"]] == [36, 1]
    )
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    told = lesson.printed(outputs)
    assert "data parallel: 1 x all_reduce" in told and "tensor parallel: 49 x all_reduce" in told
    assert "pipeline: 98 x message" in told and "99 tp syncs" in told
    assert "to within 1e-12: True" in told
    lesson.scroll_to_cell(page, 2)
    player = page.locator(".labkit-timeline").first
    player.wait_for()
    lesson.play(page, player)
