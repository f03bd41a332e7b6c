"""Lesson 14 in the browser: a model from a cell in three strategies, a refusal, a recorded loop."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

pytestmark = pytest.mark.timeout(400)  # every run on this page is live
NAME = "14_your_own_model"
WEIGHTS = (1 * 32 + 32) + 2 * ((32 * 64 + 64) + (64 * 32 + 32)) + (32 * 1 + 1)


def test_in_voila(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME)
    timelines = page.locator(".labkit-timeline")
    timelines.nth(2).wait_for()
    lesson.play(page, timelines.first)
    text = page.inner_text("body").replace("\xa0", " ")
    for way in ("dp 2", "tp 2", "pp 2"):
        assert f"{way}: as on one rank, to within 1e-12: True" in text
    assert "rnn (LSTM: holds no nn.Linear)" in text and "gives a tuple" in text
    assert lesson.answer(page, "How many numbers", "64").startswith("Not yet.")
    assert lesson.answer(page, "How many numbers", str(WEIGHTS)).startswith("Right.")
    assert lesson.answer(page, "In which order", "3, 2, 1, 0").startswith("Right.")
    lesson.keep_picture(page, NAME)


def test_turning_its_knobs(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, theme="dark", width=390)
    timeline = page.locator(".labkit-timeline").nth(1)
    timeline.wait_for()
    with lesson.another(page, timeline):
        lesson.turn(page, "microbatches", 1)  # 4, 8
    lesson.play(page, timeline)
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow_dark")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    assert lesson.printed(outputs).count("to within 1e-12: True") == 3
    timeline = page.locator(".labkit-timeline").first
    lesson.scroll_to_cell(page, 8)
    timeline.wait_for()
    lesson.play(page, timeline)
