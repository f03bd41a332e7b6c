"""Lesson 2 in the browser: two paths over one map, noise, accuracy, checks and knobs."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit.analysis.gradient_noise import gradient_noise
from labkit.analysis.learning import learning
from labkit.analysis.perceptron import mean_loss, perceptrons
from labkit.digits import digits

NAME = "02_batch_and_sgd"
NETWORK = dict(layers=2, width=8, steps=25, lr=0.5, value_limit_bytes=2048)
FULL = labkit.Plan(global_batch=1797, pace="forward=90ms,backward=180ms", **NETWORK)
MINI = labkit.Plan(global_batch=72, pace="forward=3.6ms,backward=7.2ms", **NETWORK)
STILL = labkit.Plan(layers=2, width=8, steps=1, global_batch=512, microbatches=32, value_limit_bytes=2048)


def test_in_voila(voila, open_page):
    full, mini = labkit.recall(FULL), labkit.recall(MINI)
    page = lesson.in_voila(open_page, voila, NAME)
    paths = page.locator(".labkit-loss-paths")
    lesson.play(page, paths)
    told = lesson.told(page, paths, "End")
    for trace, count in ((full, "43,128 images"), (mini, "1,728 images")):
        assert count in told and f"loss {mean_loss(perceptrons(trace)[-1], *digits()):.2f}" in told
    paths.get_by_label("What time counts").select_option("images")
    assert "0 updates, 0 images" in lesson.told(page, paths, "End")
    noise = gradient_noise(labkit.recall(STILL))
    assert lesson.chart_line(page, "Gradient noise", line=1) == pytest.approx((100 * noise["noise"]).to_list())
    shares = lesson.chart_line(page, "Images taken for the right digit, against time")
    assert shares == pytest.approx((100 * learning(full)["accuracy"]).to_list())
    assert lesson.answer(page, "How many times larger", "10").startswith("Not yet.")
    assert lesson.answer(page, "How many times larger", "100").startswith("Right.")
    assert lesson.answer(page, "At the very end", "the full batch").startswith("Right.")
    lesson.keep_picture(page, NAME)


def test_turning_the_batch(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, theme="dark", width=390)
    lesson.turn(page, "global_batch", 2)  # 32, 128, 512
    large = labkit.recall(labkit.Plan(layers=2, width=8, global_batch=512, steps=40, lr=0.5, record=()))
    page.wait_for_function(lesson.HIGHEST_OF_LAST_CHART, arg=max(large.meta.losses))
    assert lesson.chart_line(page, "Loss") == pytest.approx(large.meta.losses)
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow_dark")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    assert "mini-batches of 72: updates 24" in lesson.printed(outputs)
    lesson.scroll_to_cell(page, 4)
    paths = page.locator(".labkit-loss-paths")
    paths.wait_for()
    lesson.play(page, paths)
