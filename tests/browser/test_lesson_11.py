"""Lesson 11 in the browser: predictions beside published numbers, the calculator, and the same really run."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

from labkit.predict import predict_cases
from labkit.predict.published import narayanan_2021

NAME = "11_thousands_of_gpus"


def bars(page, title: str, name: str) -> list[float]:
    chart = page.locator(".labkit-chart").filter(has=page.get_by_text(title, exact=True)).first
    chart.locator(".main-svg").first.wait_for()
    read = "(plot, name) => Array.from(plot._fullData.find((one) => one.name === name).x)"
    return chart.locator(".js-plotly-plot").evaluate(read, name)


def test_in_voila(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, num_forms=2)
    table = predict_cases(narayanan_2021(), "a100")
    assert bars(page, "Predicted beside published", "published") == table["tflops_per_gpu"].to_list()
    predicted = bars(page, "Predicted beside published", "predicted")
    assert predicted == pytest.approx(table["predicted tflops_per_gpu"].to_list())
    assert lesson.answer(page, "on 18,432 GPUs than on 64", "288").startswith("Not yet.")
    right = "Computing activations a second time, and kernels that do not reach the peak"
    assert lesson.answer(page, "What takes most of the rest?", right).startswith("Right.")
    lesson.keep_picture(page, NAME)


def test_turning_plans(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, num_forms=2, width=390, theme="dark")
    lesson.choose(page, "cluster", "h100")
    chart = page.locator(".labkit-chart").filter(has_text="Where the time goes").nth(1)
    chart.locator(".main-svg").first.wait_for()
    lesson.turn(page, "microbatch", 1)  # 4: 2304 samples over 24 replicas are 24 of them
    problem = page.locator(".labkit-form .lk-problem").first
    assert problem.is_hidden()
    with lesson.another(page, page.locator(".labkit-timeline").last):
        page.locator('[data-field="microbatches"] input').press("ArrowLeft")
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    _, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    told = lesson.printed(outputs)
    assert "8 ranks, 2 microbatches: bubble 0.33, theory 0.33" in told
    assert "52% of the A100's peak" in told
