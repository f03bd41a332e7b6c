"""The memory scene in a page without Jupyter."""

import example_traces as examples
import memory_traces
from scene_checks import check_scene, facts, is_cut, picture

from labkit.view.memory_lanes import memory_lanes


def test_it_is_a_scene_like_all(bare):
    check_scene(bare({"one": memory_lanes(memory_traces.piles(), limit_bytes=500)}))


def test_a_rank_tells_what_it_holds_and_selects_the_event_that_told_it(bare):
    trace = memory_traces.piles()
    page = bare({"one": memory_lanes(trace)})
    page.evaluate("models[0].emit('msg:custom', {do: 'seek', t_ns: 2.5e6})")
    picture(page).focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.querySelector('.lk-facts').textContent.includes('activations')")
    assert "200 B" in facts(page) and "100 B" in facts(page)
    page.keyboard.press("Enter")
    event = trace.events.row(page.evaluate("models[0].get('selected')"), named=True)
    assert (event["rank"], event["kind"], event["microbatch"]) == (0, "stage_forward", 1)


def test_a_limit_names_who_goes_over_it(bare):
    page = bare({"one": memory_lanes(memory_traces.piles(), limit_bytes=600)})
    page.evaluate("document.querySelector('.lk-words').open = true")
    assert "rank 1 goes over it" in page.locator(".lk-words").inner_text()


def test_many_ranks_fit_a_narrow_page_and_one_without_memory_says_so(bare):
    page = bare({"one": memory_lanes(memory_traces.piles(64)), "two": memory_lanes(examples.mixed())}, width=360)
    assert not is_cut(page)
    assert "'memory'" in page.locator(".lk-empty").inner_text()
