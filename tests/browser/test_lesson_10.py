"""Lesson 10 in the browser: what ranks hold, the calculator for real sizes, and its checks."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

from labkit import costs

NAME = "10_when_it_does_not_fit"


def piles(page, title: str) -> list[float]:
    """Lengths of the parts of a chart's first bar, from the left."""
    chart = page.locator(".labkit-chart").filter(has=page.get_by_text(title, exact=True)).last
    chart.locator(".main-svg").first.wait_for()
    return chart.locator(".js-plotly-plot").evaluate("(plot) => plot._fullData.map((part) => Array.from(part.x)[0])")


def needed(gpus: int, zero: int) -> list[float]:
    model = costs.Model(layers=36, hidden=4096, heads=32)
    training = costs.Training(model=model, dp=gpus, global_batch=gpus, zero=zero, recompute="selective")
    memory = costs.peak_memory(training)
    parts = (memory.param_bytes, memory.grad_bytes, memory.optimizer_bytes, memory.activation_bytes)
    return [part / 2**30 for part in parts]


def test_in_voila(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, num_forms=2)
    lesson.play(page, page.locator(".labkit-memory-lanes").first)
    assert lesson.answer(page, "10 billion weights", "160").startswith("Right.")
    assert lesson.answer(page, "also make it fit", "A faster link between the GPUs").startswith("Not yet.")
    assert piles(page, "Memory of the fullest rank") == pytest.approx(needed(64, 0))
    lesson.keep_picture(page, NAME)


def test_turning_the_calculator_and_a_run(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, num_forms=2, width=390, theme="dark")
    gpus = page.locator('[data-field="gpus"] input')
    gpus.press("ArrowRight")  # 64 -> 512
    page.locator('[data-field="zero"] input').nth(1).press("ArrowRight")
    page.get_by_text("7.5 B, 512 GPUs").first.wait_for()
    page.wait_for_function(
        "(wanted) => [...document.querySelectorAll('.js-plotly-plot')].some((plot) => "
        "plot._fullData.length === 4 && Math.abs(Array.from(plot.data[2].x)[0] - wanted) < 1e-6)",
        arg=needed(512, 1)[2],
    )
    player = page.locator(".labkit-memory-lanes").last
    with lesson.another(page, player):
        page.locator('[data-field="recompute"] input').first.set_checked(True)
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    _, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    told = lesson.printed(outputs)
    assert "120.0 GB 31.4 GB 16.6 GB 1.9 GB" in told  # Rajbhandari et al. 2019, figure 1
    assert "bit for bit as without offloading: True" in told
    assert "ZeRO 3   the same losses" in told
