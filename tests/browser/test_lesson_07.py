"""Lesson 7 in the browser: naive against microbatches, five orders with explained bubbles, memory, knobs."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit.analysis import ideal_bubble
from labkit.comparison import numbers

NAME = "07_pipeline_parallelism"
ALONE = labkit.Plan(layers=8, global_batch=256, steps=1, dtype="float64", pace="forward=320ms,backward=640ms")
NAIVE = ALONE.vary(pp=4, schedule="naive", pace="forward=80ms,backward=160ms")
PIPED = NAIVE.vary(schedule="gpipe", microbatches=8, pace="forward=10ms,backward=20ms")
SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zbv")

LENGTHS = """(chart, name) => {
  const trace = chart.querySelector(".js-plotly-plot").data.find((one) => one.name === name);
  return Array.from(trace.x);
}"""
HOVERS = """(chart) => {
  const trace = chart.querySelector(".js-plotly-plot").data.find((one) => one.name === "bubble");
  return Array.from(trace.hovertext);
}"""


def chart(page, title: str, number: int = 0):
    found = page.locator(".labkit-chart").filter(has=page.get_by_text(title, exact=True)).nth(number)
    found.locator(".main-svg").first.wait_for()
    return found


def test_in_voila(voila, open_page):
    naive, piped = labkit.recall(NAIVE, verify=True), labkit.recall(PIPED, verify=True)
    page = lesson.in_voila(open_page, voila, NAME)
    lesson.play(page, page.locator(".labkit-timeline").first)
    steps = [numbers(trace).step_ns / 1e6 for trace in (labkit.recall(ALONE), naive, piped)]
    assert steps[1] == pytest.approx(steps[0], rel=0.1) and steps[2] < steps[0] / 2
    drawn = chart(page, "Time of a step", 1).evaluate(
        "(chart) => Array.from(chart.querySelector('.js-plotly-plot').data[0].x)"
    )
    assert drawn == pytest.approx(steps)
    idle = 100 * labkit.bubble(naive).of_total
    assert lesson.answer(page, "do the four ranks stand idle", f"{idle:.0f}").startswith("Right.")
    assert lesson.answer(page, "With 16 microbatches", "15.8").startswith("Right.")
    assert not lesson.answer(page, "What is 1F1B for?", "speed").startswith("Right.")
    assert lesson.answer(page, "What is 1F1B for?", "memory").startswith("Right.")
    lesson.keep_picture(page, NAME)


@pytest.mark.full
def test_the_bubbles_say_who_waits_and_a_sentence_leads_there(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, theme="dark")
    runs = [labkit.recall(PIPED.vary(schedule=one)) for one in SCHEDULES]
    told = chart(page, "The same batch in 5 orders").evaluate(HOVERS)
    assert any("the pipeline is filling" in one.replace("<br>", " ") for one in told)
    assert chart(page, "Bubble: idle share of the total time").evaluate(LENGTHS, "the run") == pytest.approx(
        [100 * labkit.bubble(trace).of_total for trace in runs]
    )
    assert chart(page, "Bubble: idle share of the total time").evaluate(
        LENGTHS, "its schedule, on paper"
    ) == pytest.approx([100 * ideal_bubble(trace) for trace in runs])
    player = page.locator(".labkit-timeline").nth(1)
    before = player.locator(".lk-time").inner_text()
    page.locator(".labkit-findings").get_by_text("for microbatch 0 from rank 1: the pipeline is filling").first.click()
    page.wait_for_function(
        "(before) => document.querySelectorAll('.labkit-timeline')[1].querySelector('.lk-time').innerText !== before",
        arg=before,
    )
    lesson.keep_picture(page, f"{NAME}_dark")


def test_turning_microbatches_and_schedule(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, width=390)
    problem, form = page.locator(".labkit-form .lk-problem"), page.locator(".labkit-form")
    lesson.turn(page, "microbatches", -2)  # 8, 4, 2
    problem.wait_for()
    assert "1f1b" in problem.inner_text() and "at least as many microbatches as ranks" in problem.inner_text()
    form.get_by_label("Schedule", exact=True).select_option("gpipe")
    problem.wait_for(state="hidden")
    page.locator(".labkit-timeline").last.get_by_text("digits, pp 4, gpipe").wait_for()
    idle = 100 * labkit.bubble(labkit.recall(PIPED.vary(microbatches=2))).of_total
    drawn = chart(page, "Bubble: idle share of the total time", 1).evaluate(LENGTHS, "the run")
    assert drawn == pytest.approx([idle]) and idle == pytest.approx(60, abs=3)  # (p - 1) / (m + p - 1) = 3/5
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow")


def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    told = lesson.printed(outputs)
    assert "GPipe: 8, 8, 8, 8 microbatches" in told and "1F1B: 4, 3, 2, 1 microbatches" in told
    assert "to within 1e-12: True" in told
    lesson.scroll_to_cell(page, 4)
    player = page.locator(".labkit-timeline").first
    player.wait_for()
    lesson.play(page, player)
