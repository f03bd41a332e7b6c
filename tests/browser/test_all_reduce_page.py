"""The all-reduce scene in a page without Jupyter."""

import example_traces as examples
import message_traces as messages
import pytest
from scene_checks import check_scene, facts, is_cut, picture

from labkit.view.all_reduce import all_reduce


@pytest.mark.parametrize("make", [messages.ring, messages.tree, messages.gather])
def test_it_is_a_scene_like_all(bare, make):
    check_scene(bare({"one": all_reduce(make(4))}))


def test_rounds_are_stepped_through_and_told(bare):
    page = bare({"one": all_reduce(messages.ring(4))})
    picture(page).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.lk-time').textContent === 'round 1 / 6'")
    assert "round 1 of 6" in facts(page)
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.querySelector('.lk-facts').textContent.includes('rank 0')")
    assert "ranks 0 + 3" in facts(page)


def test_a_message_can_be_selected_as_an_event(bare):
    trace = messages.tree(4)
    page = bare({"one": all_reduce(trace)})
    picture(page).focus()
    for _ in range(5):  # past the four ranks
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    event = trace.events.row(page.evaluate("models[0].get('selected')"), named=True)
    assert (event["op"], event["rank"]) == ("send", 1)


def test_without_messages_it_says_what_to_set(bare):
    page = bare({"one": all_reduce(examples.data_parallel())})
    assert "grad_sync='ring'" in page.locator(".lk-empty").inner_text()


@pytest.mark.parametrize("n", [2, 16, 64])
def test_any_number_of_ranks_fits_a_narrow_page(bare, n):
    page = bare(
        {"one": all_reduce(messages.tree(n, values=False)), "two": all_reduce(messages.ring(n, size=n, values=False))},
        width=360,
    )
    assert not is_cut(page)
