"""Lessons in Voila and in JupyterLab, as a reader meets them."""

import contextlib
import time

import lesson_page as lesson
import psutil
import pytest

TOUR = "00_tour.ipynb"
STROKE = "(e) => getComputedStyle(e).stroke"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tour_in_voila(voila, open_page, theme):
    page = open_page(f"{voila}/voila/render/{TOUR}?theme={theme}", height=1000)
    player = page.locator(".labkit-timeline").first
    player.wait_for()
    page.locator(".labkit-form").wait_for()
    assert player.get_attribute("data-theme") == theme
    assert "import labkit" not in page.content()  # the source is not shown
    assert page.locator(".lk-nav").get_by_text("Home").is_visible()
    lesson.play(page, player)


def test_run_in_voila(voila, open_page):
    page = open_page(f"{voila}/voila/render/{TOUR}", height=1000)
    form = page.locator(".labkit-form")
    form.wait_for()
    assert page.locator(".labkit-timeline").count() == 1  # the lesson's own
    form.get_by_label("Steps", exact=True).fill("2")
    form.get_by_label("Steps", exact=True).blur()
    form.get_by_role("button", name="Run").click()
    page.locator(".labkit-report").wait_for()
    assert form.locator(".lk-problem").is_hidden(), form.locator(".lk-problem").inner_text()
    lesson.play(page, page.locator(".labkit-timeline").last)


def test_an_impossible_plan_in_voila(voila, open_page):
    page = open_page(f"{voila}/voila/render/{TOUR}", height=1000)
    form = page.locator(".labkit-form")
    form.wait_for()
    form.get_by_label("Pipeline", exact=True).select_option("3")
    form.locator(".lk-problem").wait_for()
    assert "8 layers" in form.locator(".lk-problem").inner_text()
    assert form.get_by_role("button", name="Run").is_disabled()


def test_charts_offer_no_upload(voila, open_page):
    page = open_page(f"{voila}/voila/render/{TOUR}", height=1000)
    chart = page.locator(".js-plotly-plot").first
    chart.locator(".main-svg").first.wait_for()
    chart.hover()
    titles = page.eval_on_selector_all(".modebar-btn", "all => all.map((one) => one.dataset.title || '')")
    assert titles and not any("Share" in title or "Cloud" in title for title in titles), titles


def test_the_tour_in_jupyterlab(jupyterlab, open_page):
    page, _ = lesson.in_jupyterlab(open_page, jupyterlab, TOUR.removesuffix(".ipynb"))
    player = page.locator(".labkit-timeline").first
    player.wait_for()
    lesson.play(page, player)
    line = page.locator(".labkit-chart .js-line").first
    line.scroll_into_view_if_needed()
    assert line.evaluate(STROKE) == "rgb(0, 103, 168)"
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")  # a chart follows the page
    page.wait_for_function(f"({STROKE})(document.querySelector('.labkit-chart .js-line')) === 'rgb(79, 154, 219)'")
    cells = page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length")
    player.locator(".lk-picture").focus()
    for key in "axddm":  # JupyterLab's commands: cut, delete ...
        page.keyboard.press(key)
    assert page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length") == cells


def kernels() -> set[int]:
    """Process ids of the kernels that our servers run."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            found |= {process.pid} if "ipykernel_launcher" in " ".join(process.cmdline()) else set()
    return found


def test_the_kernel_of_a_closed_tab_goes(voila, open_page):
    before = kernels()
    page = open_page(f"{voila}/voila/render/your_trace.ipynb")
    page.locator(".labkit-drop").wait_for()
    own = kernels() - before
    assert own
    page.goto("about:blank")
    end = time.monotonic() + 30
    while own & kernels():
        assert time.monotonic() < end, "the kernel of a closed tab is still there"
        time.sleep(0.1)
