"""The mesh scene in a page without Jupyter."""

import example_traces as examples
import odd_traces as odd
import pytest
from scene_checks import check_scene, facts, is_cut, picture

from labkit.view.mesh_grid import mesh_grid


@pytest.mark.parametrize("make", [examples.mixed, examples.one_f_one_b, examples.data_parallel, examples.single])
def test_it_is_a_scene_like_all(bare, make):
    check_scene(bare({"one": mesh_grid(make())}))


def test_an_axis_can_be_picked_and_its_groups_are_told(bare):
    page = bare({"one": mesh_grid(examples.mixed())})
    before = picture(page).screenshot()
    page.get_by_role("button", name="dp", exact=True).click()
    page.wait_for_timeout(100)
    assert picture(page).screenshot() != before
    assert page.evaluate("models[0].get('axis')") == "dp"
    page.evaluate("document.querySelector('.lk-words').open = true")
    assert "[0, 2], [1, 3]" in page.locator(".lk-words").inner_text()


def test_a_rank_tells_what_it_does_and_selects_it(bare):
    trace = examples.one_f_one_b()
    page = bare({"one": mesh_grid(trace)})
    page.evaluate("models[0].emit('msg:custom', {do: 'seek', t_ns: 45e6})")
    picture(page).focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.querySelector('.lk-facts').textContent.includes('rank 0')")
    assert "forward, microbatch 2" in facts(page)
    page.keyboard.press("Enter")
    event = trace.events.row(page.evaluate("models[0].get('selected')"), named=True)
    assert (event["rank"], event["kind"], event["microbatch"]) == (0, "stage_forward", 2)


def test_an_event_selected_elsewhere_marks_its_rank(bare):
    trace = examples.one_f_one_b()
    row = trace.events.with_row_index("row").filter(rank=3, kind="stage_backward")["row"][0]
    page = bare({"one": mesh_grid(trace)})
    page.evaluate(f"models[0].set('selected', {row})")
    page.wait_for_function("document.querySelector('.lk-facts').textContent.includes('rank 3')")


def test_512_ranks_fit_a_narrow_page_and_an_empty_trace_says_so(bare):
    page = bare({"one": mesh_grid(odd.many_ranks()), "two": mesh_grid(examples.empty())}, width=360)
    assert not is_cut(page)
    assert "no events" in page.locator(".lk-empty").inner_text()
