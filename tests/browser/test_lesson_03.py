"""Lesson 3 in the browser: images fly to their ranks, throughput against ranks, checks and knobs."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit.comparison import numbers, scaling

NAME = "03_data_parallelism"
NETWORK = dict(layers=2, width=32, steps=3, pace="forward=20ms,backward=40ms,optimizer=5ms")


def share(ranks, **more):
    more |= NETWORK | {"global_batch": 1000, "dtype": "float64"}
    return labkit.recall(labkit.Plan(dp=ranks, microbatches=100 // ranks, **more))


def test_in_voila(voila, open_page):
    runs = [share(ranks) for ranks in (1, 2, 5, 10)]
    page = lesson.in_voila(open_page, voila, NAME)
    flow = page.locator(".labkit-batch-flow").first
    lesson.play(page, flow)
    samples = labkit.recall(labkit.Plan(dp=4, global_batch=32, value_limit_bytes=128, **NETWORK)).of("load")
    samples = samples.filter(step=2, rank=1)["samples"][0].to_list()
    lesson.told(page, flow, "ArrowDown")
    assert ", ".join(map(str, samples[:3])) in lesson.told(page, flow, "ArrowDown")
    minutes = numbers(runs[-1]).step_ns / 6e6
    assert f"ranks 10: {minutes:7,.1f} minutes" in page.inner_text("body").replace("\xa0", " ")
    drawn = lesson.chart_line(page, "Scaling", line=1, number=0)
    assert drawn == pytest.approx(scaling(runs)["samples_per_s"].to_list())
    assert lesson.answer(page, "how many does each get", "125").startswith("Right.")
    assert lesson.answer(page, "would 20 ranks need", "50 minutes").startswith("Right.")
    slow = [runs[0], *(share(ranks, link="latency=10ms,bandwidth=200kB/s") for ranks in (2, 5, 10))]
    speedup = scaling(slow)["speedup"][-1]
    assert lesson.answer(page, "on the slow network", f"{speedup:.1f}").startswith("Right.")
    lesson.keep_picture(page, NAME)


def test_turning_the_number_of_ranks(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, theme="dark", width=390)
    lesson.turn(page, "dp", -1)  # 4, 3
    problem = page.locator(".labkit-form .lk-problem")
    problem.wait_for()
    assert "32" in problem.inner_text() and "3" in problem.inner_text()
    lesson.turn(page, "dp", -1)  # 3, 2
    problem.wait_for(state="hidden")
    page.locator(".labkit-batch-flow").nth(1).get_by_text("digits, dp 2").wait_for()
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow_dark")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    assert lesson.printed(outputs).count("same: True") == 4
    lesson.scroll_to_cell(page, 2)
    flow = page.locator(".labkit-batch-flow").first
    flow.wait_for()
    lesson.play(page, flow)
