"""Lesson 15 in the browser: profiler files read, played, explained, cut off; numbers are those of the run itself."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit import analysis

pytestmark = pytest.mark.timeout(300)
NAME = "15_your_own_trace"
PLAN = labkit.Plan(
    dp=2, layers=4, global_batch=64, pace="forward=20ms,backward=40ms", slow={1: 1.5},
    link="latency=1ms,bandwidth=5MB/s",
)  # fmt: skip


def exposed_percent(rank: int) -> float:
    """From the run itself, which the lesson reads back from profiler files."""
    row = analysis.breakdown(labkit.recall(PLAN)).to_dicts()[rank]
    return 100 * row["exposed_sync_ns"] / row["window_ns"]


def test_in_voila(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME)
    timelines = page.locator(".labkit-timeline")
    timelines.nth(1).wait_for()
    lesson.play(page, timelines.first)
    assert "imported" in timelines.first.inner_text()
    assert lesson.answer(page, "What share of its time did rank 0", "99").startswith("Not yet.")
    assert lesson.answer(page, "What share of its time did rank 0", f"{exposed_percent(0):.1f}").startswith("Right.")
    text = page.inner_text("body").replace("\xa0", " ")
    assert "a profiler's file does not say which kernel waits for which" in text
    lesson.keep_picture(page, NAME)


def test_cutting_the_file(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, theme="dark", width=390)
    timeline = page.locator(".labkit-timeline").nth(1)
    timeline.wait_for()
    assert "cut off at byte" in page.inner_text("body")
    with lesson.another(page, timeline):
        lesson.turn(page, "percent", 1)
    lesson.play(page, timeline)
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow_dark")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    assert "rank0" in lesson.printed(outputs) and "imported" in lesson.printed(outputs)
    lesson.scroll_to_cell(page, 5)
    timeline = page.locator(".labkit-timeline").first
    timeline.wait_for()
    lesson.play(page, timeline)
