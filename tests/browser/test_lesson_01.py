"""Lesson 1 in the browser: weights that change, the numbers beside them, checks and knobs."""

import math

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit

NAME = "01_what_training_is"
PLAN = labkit.Plan(layers=1, global_batch=100, steps=21, lr=0.8, value_limit_bytes=2560)


@pytest.fixture(scope="module")
def trace():
    return labkit.recall(PLAN)


def test_in_voila(voila, open_page, trace):
    page = lesson.in_voila(open_page, voila, NAME)
    pictures = page.locator(".labkit-weight-pictures").first
    lesson.play(page, pictures)
    told = lesson.told(page, pictures, "End")
    assert "step 20 · forward" in told and f"{trace.meta.losses[20]:.3f}" in told
    assert lesson.chart_line(page, "Loss", number=0) == pytest.approx(trace.meta.losses)
    assert lesson.answer(page, "What is its loss then", f"{math.log(10):.2f}").startswith("Right.")
    assert lesson.answer(page, "after the update", "0.06").startswith("Not yet.")
    assert lesson.answer(page, "How many parameters", "7,510").startswith("Right.")
    lesson.keep_picture(page, NAME)


def test_turning_the_learning_rate(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, theme="dark", width=390)
    lesson.turn(page, "lr", 2)  # 0.5, 2, 8
    jumpy = labkit.recall(labkit.Plan(layers=1, width=32, global_batch=100, steps=60, lr=8.0, record=()))
    page.wait_for_function(lesson.HIGHEST_OF_LAST_CHART, arg=max(jumpy.meta.losses))
    assert lesson.chart_line(page, "Loss") == pytest.approx(jumpy.meta.losses)
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow_dark")


def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    assert "64 → 10: 650, in the run 650" in lesson.printed(outputs)
    assert "12,800 new weights, all as the rule says: True" in lesson.printed(outputs)
    lesson.scroll_to_cell(page, 4)
    pictures = page.locator(".labkit-weight-pictures").first
    pictures.wait_for()
    lesson.play(page, pictures)
