"""The timeline player in a page without Jupyter: what it draws, how it answers, how fast it is."""

import example_traces as examples
import memory_traces
import pytest
from scene_checks import is_cut

from labkit.plan import Plan
from labkit.view.answers import path_segments
from labkit.view.theme import look
from labkit.view.timeline import live_timeline, timeline

DRAWS = "Number(document.querySelector('.labkit-timeline').dataset.draws)"
PIXEL = """([x, y]) => { const c = document.querySelector('.lk-picture'), r = c.width / c.clientWidth;
    return [...c.getContext('2d').getImageData(x * r, y * r, 1, 1).data].slice(0, 3); }"""
FRAMES = """async () => { let frames = 0; const end = performance.now() + 1500;
    while (performance.now() < end) { await new Promise(requestAnimationFrame); frames++; }
    return frames; }"""


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


def test_layers_come_when_there_is_room_and_go_again(bare):
    page = bare({"one": timeline(examples.one_f_one_b(), step=0)})
    point_at(page, 300, 34)
    assert "blocks" not in facts(page)
    picture(page).focus()
    for _ in range(3):
        page.keyboard.press("+")
    point_at(page, 301, 34)
    assert "blocks" in facts(page)
    page.keyboard.press("0")
    point_at(page, 300, 34)
    assert "blocks" not in facts(page)
    assert page.get_by_role("button", name="Auto").get_attribute("aria-pressed") == "true"


def test_the_critical_path_is_asked_for_once_and_drawn_when_it_is_there(bare):
    """The kernel's answer is put into the model, as it would come."""
    trace = examples.one_f_one_b(num_steps=2)
    page = bare({"one": timeline(trace, step=1)})
    before = picture(page).screenshot()
    picture(page).focus()
    page.keyboard.press("c")
    assert "not there yet" in facts(page)
    assert page.evaluate("models[0].sent") == [{"do": "path", "step": 1}]
    page.evaluate("(path) => models[0].set('paths', {1: path})", path_segments(trace, 1))
    assert "critical path, 698 ms" in facts(page)
    assert picture(page).screenshot() != before
    page.keyboard.press("c")
    assert "Play, or point" in facts(page)
    assert page.evaluate("models[0].sent.length") == 1


def test_idle_time_tells_why(bare):
    trace = examples.one_f_one_b(num_stages=2, num_microbatches=2)
    widget = timeline(trace)
    widget.find_causes()
    page = bare({"one": widget})
    width = picture(page).bounding_box()["width"]
    point_at(page, 128 + (width - 140) * 0.99, 34 + 80)  # rank 1 has nothing left to do while rank 0 goes on
    assert "idle" in facts(page) and "rank 1 stood still" in facts(page)
    picture(page).click(position={"x": 128 + (width - 140) * 0.99, "y": 114})
    assert page.evaluate("models[0].get('selected')") == -1


def test_memory_lies_below_each_row_and_tells_what_is_held(bare):
    page = bare({"one": timeline(memory_traces.piles(), memory=True)})
    height = picture(page).bounding_box()["height"]
    point_at(page, 700, 14 + 40 + 10)
    assert "rank 0 holds" in facts(page) and "parameters 100 B" in " ".join(facts(page).split())
    picture(page).focus()
    page.keyboard.press("m")
    page.wait_for_timeout(150)
    assert picture(page).bounding_box()["height"] < height


BECOME = """() => { const [live, other] = models.map((model) => model.state);
    for (const name of ["layers", "channels", "ranks", "bands", "counts", "notes"]) live[name] = other[name];
    models[0].set("columns", other.columns); }"""
"""The first player gets what the second one shows, as a run's next events come."""


def test_a_live_timeline_grows_in_place(bare):
    plan = Plan(pp=4, layers=8, microbatches=8, global_batch=64)
    page = bare({"live": live_timeline(plan), "other": timeline(examples.one_f_one_b(num_steps=1))})
    assert "Waiting for the first step" in page.locator(".lk-empty").inner_text()
    page.evaluate(BECOME)
    page.wait_for_function("document.querySelectorAll('.lk-empty').length === 0")
    wait_for_time(page, "0.00 / 698 ms")
    assert page.get_by_label("Training step").count() == 0
    picture(page).focus()
    page.keyboard.press("c")
    assert "when the run is over" in facts(page)
    assert page.evaluate("models[0].sent") == []


def test_a_live_timeline_keeps_the_view_its_reader_chose(bare):
    one, two = examples.one_f_one_b(num_steps=1), examples.one_f_one_b(num_steps=2)
    page = bare({"live": timeline(one), "other": timeline(two)})
    picture(page).focus()
    for _ in range(4):
        page.keyboard.press("+")
    page.evaluate("models[0].emit('msg:custom', {do: 'seek', t_ns: 30e6})")
    point_at(page, 700, 34)
    before = facts(page)
    page.evaluate(BECOME)
    wait_for_time(page, "30.0 / 1400 ms")
    assert page.get_by_label("Training step").count() == 2
    point_at(page, 701, 34)
    assert facts(page) == before and "rank" in before


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
    assert not is_cut(page)


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
    page.wait_for_function("parseFloat(document.querySelector('.lk-time').textContent) > 60")  # two jumps
    seen = set()
    for _ in range(5):
        page.wait_for_timeout(100)
        seen.add(float(page.locator(".lk-time").inner_text().split(" ")[0]))
    jump = 698 / 24  # clock.js: CALM_STEPS
    assert all(abs(at - jump * round(at / jump)) <= 0.6 for at in seen)


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


def test_100000_events_are_drawn_in_every_frame(bare):
    """However fast the machine is. `make bench` says how many frames there are."""
    page = bare({"one": timeline(examples.dense(100_000))})
    picture(page).focus()
    page.keyboard.press("Space")
    before = page.evaluate(DRAWS)
    frames = page.evaluate(FRAMES)
    assert page.evaluate(DRAWS) - before >= 0.9 * frames > 0
