"""The timeline player in a page without Jupyter: what it draws, how it answers, how fast it is."""

import example_traces as examples
import pytest

from labkit.view.theme import look
from labkit.view.timeline import timeline

DRAWS = "Number(document.querySelector('.labkit-timeline').dataset.draws)"
PIXEL = """([x, y]) => { const c = document.querySelector('.lk-picture'), r = c.width / c.clientWidth;
    return [...c.getContext('2d').getImageData(x * r, y * r, 1, 1).data].slice(0, 3); }"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FPS = """async () => { let frames = 0; const end = performance.now() + 1500;
    const tick = (done) => { frames++; performance.now() < end ? requestAnimationFrame(() => tick(done)) : done(); };
    await new Promise(tick);
    return frames / 1.5; }"""


def rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def picture(page, number: int = 0):
    return page.locator(".lk-picture").nth(number)


PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""What was just asked for is on the screen: drawing waits for the next frame."""


def facts(page, number: int = 0) -> str:
    page.evaluate(PAINTED)
    return page.locator(".lk-facts").nth(number).inner_text()


def wait_for_time(page, beginning: str) -> None:
    """Until the clock's text begins so; it is written with the next frame."""
    page.wait_for_function("(text) => document.querySelector('.lk-time').textContent.startsWith(text)", arg=beginning)


def point_at(page, x: float, y: float, number: int = 0) -> None:
    box = picture(page, number).bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_timeout(100)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_spans_are_drawn_where_they_are_in_their_colours(bare, theme):
    page = bare({"one": timeline(examples.one_f_one_b(), step=0)}, theme=theme)
    width = picture(page).bounding_box()["width"]
    left, right, total_ms = 128, width - 12, 698  # geometry.js: layOut

    def pixel(time_ms: float, y: float) -> list[int]:
        return page.evaluate(PIXEL, [left + (right - left) * time_ms / total_ms, y])

    assert pixel(43, 18) == rgb(look("forward").fill(theme))  # rank 0, F2: 40 to 60 ms
    assert pixel(214, 18) == rgb(look("backward").fill(theme))  # rank 0, B0


def test_play_moves_the_picture_and_stops_on_demand(bare):
    page = bare({"one": timeline(examples.one_f_one_b(num_steps=2))})
    before = picture(page).screenshot()
    page.get_by_role("button", name="Play (Space)").click()
    page.wait_for_timeout(900)
    page.get_by_role("button", name="Pause (Space)").click()
    assert picture(page).screenshot() != before
    assert page.evaluate(DRAWS) > 15
    assert "rank 0" in facts(page)
    at = page.locator(".lk-time").inner_text()
    page.wait_for_timeout(300)
    assert page.locator(".lk-time").inner_text() == at
    assert page.evaluate("models[0].saved") == 0  # nothing goes to the kernel while it plays


def test_keys(bare):
    page = bare({"one": timeline(examples.one_f_one_b(num_steps=2), step=0)})
    picture(page).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert "rank 0" in page.locator(".lk-unseen[aria-live]").inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("models[0].get('selected')") >= 0
    page.keyboard.press("Escape")
    assert page.evaluate("models[0].get('selected')") == -1
    page.keyboard.press("End")
    wait_for_time(page, "698 /")
    page.keyboard.press("l")
    assert page.get_by_role("button", name="Loop (L)").get_attribute("aria-pressed") == "true"
    before = picture(page).screenshot()
    page.keyboard.press("Home")
    page.keyboard.press("+")
    page.wait_for_timeout(100)
    assert picture(page).screenshot() != before


def test_pointing_tells_all_and_clicking_selects(bare):
    trace = examples.one_f_one_b()
    page = bare({"one": timeline(trace)})
    point_at(page, 140, 30)
    told = facts(page)
    assert "forward" in told and "0 · stage 0" in told and "20.0 ms" in told
    box = picture(page).bounding_box()
    page.mouse.click(box["x"] + 140, box["y"] + 30)
    event = trace.events.row(page.evaluate("models[0].get('selected')"), named=True)
    assert (event["kind"], event["rank"], event["microbatch"]) == ("stage_forward", 0, 0)


def test_the_facts_never_cover_the_picture(bare):
    page = bare({"one": timeline(examples.mixed())})
    point_at(page, 200, 30)
    canvas, box = picture(page).bounding_box(), page.locator(".lk-facts").bounding_box()
    assert box["y"] >= canvas["y"] + canvas["height"]


def test_a_collective_is_tied_together_and_names_the_last_to_join(bare):
    page = bare({"one": timeline(examples.data_parallel(num_steps=1))})
    before = picture(page).screenshot()
    width = picture(page).bounding_box()["width"]
    point_at(page, 128 + (width - 140) * 0.87, 14 + 40 + 2 + 8)
    assert "all_reduce" in facts(page) and "rank 3 joined last" in facts(page)
    assert picture(page).screenshot() != before


def test_steps_and_details_can_be_chosen(bare):
    page = bare({"one": timeline(examples.one_f_one_b(num_steps=3))})
    page.get_by_label("Training step").select_option("2")
    wait_for_time(page, "0.00 / 698 ms")
    before = picture(page).screenshot()
    page.get_by_role("button", name="Layers").click()
    page.wait_for_timeout(100)
    assert picture(page).screenshot() != before


def test_two_players_do_not_meet(bare):
    page = bare({"one": timeline(examples.one_f_one_b()), "two": timeline(examples.data_parallel())})
    second = page.locator(".lk-time").nth(1).inner_text()
    picture(page, 0).focus()
    page.keyboard.press("End")
    page.wait_for_timeout(100)
    assert page.locator(".lk-time").nth(1).inner_text() == second
    assert page.evaluate("[...document.querySelectorAll('[id]')].length") == 0
    page.evaluate("removers[0]()")
    assert page.locator(".labkit-timeline").count() == 1


def test_markup_in_names_stays_text(bare):
    page = bare({"one": timeline(examples.single())})
    point_at(page, 67, 34)
    assert "<img src=x" in facts(page)
    assert page.locator("img").count() == 0 and page.locator(".lk-notes b").count() == 0
    assert "<b>not bold</b>" in page.locator(".lk-notes").inner_text()


def test_an_empty_trace_says_so(bare):
    page = bare({"one": timeline(examples.empty())})
    assert "holds no events" in page.locator(".lk-empty").inner_text()


def test_where_times_come_from_is_always_said(bare):
    page = bare({"one": timeline(examples.data_parallel())})
    assert "times: paced, 100 times slower" in page.locator(".lk-badge").inner_text()


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_pages_do_not_scroll_sideways(bare, width):
    page = bare({"one": timeline(examples.one_f_one_b(num_steps=2)), "two": timeline(examples.mixed())}, width=width)
    assert page.evaluate(OVERFLOW) == 0


def test_no_text_is_smaller_than_11_pixels(bare):
    page = bare({"one": timeline(examples.mixed())})
    sizes = page.evaluate(
        "[...document.querySelectorAll('.labkit *')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 11


def test_a_theme_that_changes_is_followed(bare):
    page = bare({"one": timeline(examples.one_f_one_b())})
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_timeout(150)
    assert page.locator(".labkit-timeline").get_attribute("data-theme") == "dark"


def test_with_reduced_motion_the_playhead_jumps(bare):
    page = bare({"one": timeline(examples.one_f_one_b())}, reduced_motion="reduce")
    picture(page).focus()
    page.keyboard.press("Space")
    seen = set()
    for _ in range(20):
        page.wait_for_timeout(100)
        seen.add(page.locator(".lk-time").inner_text())
    assert 2 <= len(seen) <= 5


def test_jupyters_keys_are_kept_off_everything_that_takes_focus(bare):
    page = bare({"one": timeline(examples.one_f_one_b(num_steps=2))})
    page.evaluate("document.querySelector('.lk-words').open = true")
    unmarked = page.evaluate(
        "[...document.querySelectorAll('.labkit :is(canvas[tabindex], button, input, select, summary, [tabindex])')]"
        ".filter((e) => !e.dataset.lmSuppressShortcuts).map((e) => e.className || e.tagName)"
    )
    assert unmarked == []


def test_python_can_drive_it(bare):
    page = bare({"one": timeline(examples.one_f_one_b())})
    page.evaluate("models[0].emit('msg:custom', {do: 'seek', t_ns: 349e6})")
    wait_for_time(page, "349 /")


@pytest.mark.parametrize(("num_events", "least"), [(10_000, 30), (100_000, 30)])
def test_frames_per_second(bare, num_events, least):
    """The bound is half of what a free machine gives (60), so that a busy one does not fail it."""
    page = bare({"one": timeline(examples.dense(num_events))})
    picture(page).focus()
    page.keyboard.press("Space")
    before = page.evaluate(DRAWS)
    rate = page.evaluate(FPS)
    drawn = page.evaluate(DRAWS) - before
    assert rate >= least and drawn >= least, f"{rate:.0f} frames a second, {drawn} drawn in 1.5 s"
