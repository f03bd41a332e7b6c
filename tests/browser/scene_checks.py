"""What every scene must do, checked on a page that shows it."""


def is_cut(page) -> bool:
    """Whether something reaches beyond the page's right edge."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") != 0


FOCUSABLE = ".labkit :is(canvas[tabindex], button, input, select, summary, [tabindex])"
UNMARKED = f"""[...document.querySelectorAll('{FOCUSABLE}')]
    .filter((e) => !e.dataset.lmSuppressShortcuts && !e.classList.contains('lk-badge')).length"""
SMALLEST = (
    "Math.min(...[...document.querySelectorAll('.labkit *')].map((e) => parseFloat(getComputedStyle(e).fontSize)))"
)


def picture(page, number: int = 0):
    return page.locator(".lk-picture").nth(number)


PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""What was just asked for is on the screen: drawing waits for the next frame."""


def facts(page, number: int = 0) -> str:
    page.evaluate(PAINTED)
    return page.locator(".lk-facts").nth(number).inner_text()


def check_scene(page) -> None:
    """It plays and stops, jumps, follows the theme, names itself, takes no key from Jupyter, fits a narrow page."""
    before = picture(page).screenshot()
    page.get_by_role("button", name="Play (Space)").first.click()
    page.wait_for_timeout(700)
    page.get_by_role("button", name="Pause (Space)").first.click()
    assert picture(page).screenshot() != before
    assert page.evaluate("models[0].saved") == 0  # nothing goes to the kernel while it plays
    picture(page).focus()
    page.keyboard.press("End")
    page.wait_for_timeout(300)
    ended = picture(page).screenshot()
    page.keyboard.press("Home")
    page.wait_for_timeout(300)
    assert picture(page).screenshot() != ended
    assert "Times:" in picture(page).get_attribute("aria-label")
    page.evaluate("document.querySelector('.lk-words').open = true")
    assert len(page.locator(".lk-words p").first.inner_text()) > 20
    assert page.evaluate(UNMARKED) == 0 and page.evaluate(SMALLEST) >= 11
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_timeout(300)
    assert page.locator(".labkit").first.get_attribute("data-theme") == "dark"
    page.set_viewport_size({"width": 360, "height": 700})
    page.wait_for_timeout(300)
    assert not is_cut(page)
    page.evaluate("removers[0]()")
    assert page.locator(".labkit").count() == page.locator("[data-widget]").count() - 1
