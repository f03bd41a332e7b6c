"""Lesson 8 in the browser: the grid plays, axes light up, traffic per axis, grids that cannot be."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit.analysis import sync_totals

NAME = "08_2d_and_3d"
SMALL = labkit.Plan(dp=2, tp=2, layers=8, microbatches=4, steps=1, max_ranks=8, record=("compute", "sync"))
BARS = "(chart) => chart.querySelector('.js-plotly-plot').data.map((one) => [Array.from(one.y), Array.from(one.x)])"


def traffic(page, number: int):
    chart = page.locator(".labkit-chart").filter(has_text="Traffic of each axis").nth(number)
    chart.locator(".main-svg").first.wait_for()
    return chart.evaluate(BARS)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.full)])
def test_in_voila(voila, open_page, theme):
    page = lesson.in_voila(open_page, voila, NAME, theme=theme)
    grid = page.locator(".labkit-mesh-grid").first
    lesson.play(page, grid)
    for axis, group in (("tp", "4, 5"), ("dp", "5, 7"), ("pp", "1, 5")):
        picture = grid.locator(".lk-picture")
        before = picture.screenshot()
        grid.get_by_role("button", name=axis, exact=True).click()
        page.wait_for_timeout(200)
        assert picture.screenshot() != before
        assert f"({group})" in page.locator("body").inner_text()
    assert lesson.answer(page, "Rank 5 averages", "7").startswith("Right.")
    assert not lesson.answer(page, "on the fastest link", "pp").startswith("Right.")
    assert lesson.answer(page, "on the fastest link", "tp").startswith("Right.")
    assert lesson.answer(page, "how many groups average", "4").startswith("Right.")
    (axes, counts), (_, sizes) = traffic(page, 0)
    assert axes == ["tp", "dp", "pp"] and counts == [18, 1, 4]  # as torch's engines sync; see tests/engine
    assert sizes[0] > sizes[1] > 0 and f"tp: 18 in a step, {sizes[0]:,.0f} KiB" in page.inner_text("body")
    lesson.keep_picture(page, f"{NAME}_{theme}")


def test_changing_the_grid(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, width=390)
    problem = page.locator(".labkit-form .lk-problem")
    lesson.turn(page, "pp", 1)
    page.locator(".labkit-mesh-grid").last.get_by_text("digits, dp 2 x tp 2 x pp 2").wait_for()
    totals = sync_totals(labkit.recall(SMALL.vary(pp=2)))
    (axes, counts), _ = traffic(page, 1)
    assert axes == ["tp", "dp", "pp"] and counts == pytest.approx([totals[axis]["count"] for axis in axes])
    lesson.turn(page, "dp", 1)  # 4 x 2 x 2
    problem.wait_for()
    assert "16 ranks" in problem.inner_text() and "at most 8" in problem.inner_text()
    lesson.turn(page, "tp", -1)  # 4 x 1 x 2
    problem.wait_for(state="hidden")
    page.locator(".labkit-mesh-grid").last.get_by_text("digits, dp 4 x pp 2").wait_for()
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    told = lesson.printed(outputs)
    assert "dp (0, 2) (1, 3) (4, 6) (5, 7)" in told and "replicas bit-identical: True" in told
    assert "to within 1e-12: True" in told
    lesson.scroll_to_cell(page, 2)
    grid = page.locator(".labkit-mesh-grid").first
    grid.wait_for()
    lesson.play(page, grid)
