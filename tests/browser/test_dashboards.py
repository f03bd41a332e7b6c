"""Lessons in Voila and in JupyterLab, as a reader meets them."""

import pytest

TOUR = "00_tour.ipynb"
RUN_ALL = """async () => {
  const panel = jupyterapp.shell.currentWidget;
  await panel.context.ready; await panel.sessionContext.ready;
  await jupyterapp.commands.execute("notebook:run-all-cells");
}"""


def play_and_check(page, player) -> None:
    """The picture changes while it plays, and nowhere else does anything happen."""
    picture, time = player.locator(".lk-picture"), player.locator(".lk-time")
    picture.scroll_into_view_if_needed()
    before, at = picture.screenshot(), time.inner_text()
    picture.focus()
    page.keyboard.press("Space")
    page.wait_for_timeout(1000)
    page.keyboard.press("Space")
    assert time.inner_text() != at and picture.screenshot() != before


def test_the_index_shows_a_card_for_every_lesson(voila, notebooks, open_page):
    page = open_page(voila)
    assert page.locator("li a").count() == len(list(notebooks.glob("*.ipynb")))
    assert page.locator("li b").first.inner_text() == "Tour: four ranks, real images, every event"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tour_in_voila(voila, open_page, theme):
    page = open_page(f"{voila}/voila/render/{TOUR}?theme={theme}", height=1000)
    player = page.locator(".labkit-timeline").first
    player.wait_for()
    page.locator(".labkit-form").wait_for()
    assert player.get_attribute("data-theme") == theme
    assert "import labkit" not in page.content()  # the source is not shown
    assert page.locator(".lk-nav").get_by_text("All lessons").is_visible()
    play_and_check(page, player)


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
    play_and_check(page, page.locator(".labkit-timeline").last)


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
    page = open_page(f"{jupyterlab}/lab/tree/{TOUR}?reset", width=1400, height=1000)
    page.wait_for_function("window.jupyterapp?.shell.currentWidget?.sessionContext")
    page.evaluate(RUN_ALL)
    player = page.locator(".labkit-timeline").first
    player.wait_for()
    play_and_check(page, player)
    cells = page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length")
    player.locator(".lk-picture").focus()
    for key in "axddm":  # JupyterLab's commands: cut, delete ...
        page.keyboard.press(key)
    assert page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length") == cells
