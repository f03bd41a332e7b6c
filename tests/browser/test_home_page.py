"""The home page: a card for every notebook, with a picture of its run that plays."""

from scene_checks import is_cut

INK = """(path) => {
  const canvas = document.querySelector(`canvas[data-path="${path}"]`);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.reduce((sum, value, k) => sum + (k % 4 === 3 ? value : 0), 0) / 255;
}"""
"""How much of a picture is painted, in whole pixels."""


def test_a_card_for_every_notebook_lessons_first(voila, notebooks, open_page):
    page = open_page(voila)
    links = [link.get_attribute("href") for link in page.locator("li a").all()]
    assert len(links) == len(list(notebooks.glob("*.ipynb")))
    names = [link.rpartition("/")[2].partition("?")[0] for link in links]
    tools = names[names.index("explorer.ipynb") :]
    assert tools[:3] == ["explorer.ipynb", "compare.ipynb", "your_trace.ipynb"]
    assert names[: -len(tools)] == sorted(names[: -len(tools)]) and names[0].startswith("00_")
    assert page.locator("h2").all_inner_texts() == ["Lessons", "Tools"]
    assert page.locator("li b").first.inner_text() == "Tour: four ranks, real images, every event"


def test_pictures_are_drawn_and_play_when_pointed_at(voila, open_page):
    page = open_page(voila)
    card = page.locator("li a", has_text="Explorer")
    whole = page.evaluate(INK, "explorer.ipynb")
    assert whole > 2000
    card.hover()
    page.wait_for_timeout(600)
    assert page.evaluate(INK, "explorer.ipynb") < 0.8 * whole  # what is still to come is faded
    page.mouse.move(2, 2)
    page.wait_for_timeout(100)
    assert abs(page.evaluate(INK, "explorer.ipynb") - whole) < 0.01 * whole


def test_pictures_stand_still_for_readers_who_ask_for_it(voila, open_page):
    page = open_page(voila, reduced_motion="reduce")
    whole = page.evaluate(INK, "explorer.ipynb")
    page.locator("li a", has_text="Explorer").hover()
    page.wait_for_timeout(500)
    assert page.evaluate(INK, "explorer.ipynb") == whole


def test_the_home_page_is_narrow_dark_and_works_by_keyboard(voila, open_page):
    page = open_page(f"{voila}/?theme=dark", width=360)
    assert not is_cut(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 19, 24)"
    sizes = page.evaluate(
        "[...document.querySelectorAll('main *')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 11
    page.keyboard.press("Tab")  # the theme
    page.keyboard.press("Tab")  # the first card
    assert "theme=dark" in page.evaluate("document.activeElement.href")
    page.get_by_text("Light page").click()
    page.wait_for_url("**theme=light")
