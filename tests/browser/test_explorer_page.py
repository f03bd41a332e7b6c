"""The explorer in Voila: a plan from the address, a run, every tab, what a reader is told."""

from scene_checks import is_cut

EXPLORER = "voila/render/explorer.ipynb"


def test_a_plan_in_the_address_is_run_and_looked_at(voila, open_page):
    page = open_page(f"{voila}/{EXPLORER}#plan=steps=2;dp=2;pp=2;layers=4;microbatches=2;paced=off", height=1000)
    form = page.locator(".labkit-form")
    form.wait_for()
    page.wait_for_function("document.querySelector('.lk-ranks').textContent.includes('= 4 ranks')")
    assert form.get_by_label("Steps", exact=True).input_value() == "2"
    form.get_by_role("button", name="Run").click()
    report = page.locator(".labkit-report")
    report.wait_for()
    assert "replicas identical" in report.inner_text() and "samples per second" in report.inner_text()
    assert page.locator(".labkit-player").count() == 1  # other scenes are not made yet
    page.get_by_role("tab", name="Why ranks wait").click()
    found = page.locator(".labkit-findings")
    found.wait_for()
    assert "rank 3" in found.inner_text() and "worked" in found.inner_text()
    found.locator(".lk-gap").last.click()  # leads to its moment
    page.locator(".labkit-timeline").wait_for()
    page.wait_for_function("!document.querySelector('.labkit-timeline .lk-time').textContent.startsWith('0.00 /')")
    page.get_by_role("tab", name="Mesh").click()
    page.locator(".labkit-mesh-grid, .labkit-mesh").first.wait_for()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Memory").get_attribute("aria-selected") == "true"


def test_an_impossible_plan_offers_the_nearest_one(voila, open_page):
    page = open_page(f"{voila}/{EXPLORER}", height=1000)
    form = page.locator(".labkit-form")
    form.wait_for()
    form.get_by_label("Pipeline", exact=True).select_option("3")
    use = form.locator(".lk-nearest")
    use.wait_for()
    assert form.get_by_role("button", name="Run").is_disabled()
    use.click()
    form.locator(".lk-problem").wait_for(state="hidden")
    assert form.get_by_role("button", name="Run").is_enabled()
    assert page.evaluate("location.hash").startswith("#plan=")


def test_a_link_that_is_no_plan_is_told_not_trusted(voila, open_page):
    page = open_page(f"{voila}/{EXPLORER}#plan=pp=%3Cimg%20src=x%3E", width=360)
    problem = page.locator(".lk-problem")
    problem.wait_for()
    assert "pp='<img src=x>'" in problem.inner_text() and page.locator(".labkit img").count() == 0
    assert not is_cut(page)


def test_a_run_can_be_cancelled(voila, open_page):
    page = open_page(f"{voila}/{EXPLORER}#plan=steps=500", height=1000)
    form = page.locator(".labkit-form")
    form.wait_for()
    page.wait_for_function("document.querySelector('[aria-label=Steps]').value === '500'")
    form.get_by_role("button", name="Run").click()
    page.wait_for_function("/about \\d+ s to go/.test(document.querySelector('.lk-status').textContent)")
    form.get_by_role("button", name="Cancel").click()
    form.get_by_text("Cancelled. The ranks were stopped.").wait_for()
    page.locator(".labkit-report").wait_for()  # what was recorded until then
    assert "did not finish" in page.locator(".labkit-report .lk-notes").inner_text()


def test_charts_follow_the_page(voila, open_page):
    page = open_page(f"{voila}/{EXPLORER}?theme=dark#plan=steps=2;pp=1;dp=2;microbatches=1;paced=off", height=1000)
    form = page.locator(".labkit-form")
    form.wait_for()
    page.wait_for_function("document.querySelector('.lk-ranks').textContent.includes('= 2 ranks')")
    form.get_by_role("button", name="Run").click()
    page.locator(".labkit-report").wait_for()
    page.get_by_role("tab", name="Charts").click()
    line = page.locator(".labkit-chart .js-line").first
    line.wait_for()
    assert line.evaluate("(e) => getComputedStyle(e).stroke") == "rgb(79, 154, 219)"  # the dark theme's forward
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    page.wait_for_function(
        "getComputedStyle(document.querySelector('.labkit-chart .js-line')).stroke === 'rgb(0, 103, 168)'"
    )
    wide = page.locator(".labkit-chart .main-svg").first.evaluate(
        "(e) => e.clientWidth / e.closest('.labkit').clientWidth"
    )
    assert wide > 0.9
