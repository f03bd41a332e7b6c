"""The replicas scene in a page without Jupyter."""

import example_traces as examples
import pytest
import replica_traces
from scene_checks import check_scene, facts, is_cut, picture

from labkit.analysis.replicas import replicas
from labkit.view.replicas import replica_scene


@pytest.mark.parametrize("averaged", [True, False])
def test_it_is_a_scene_like_all(bare, averaged):
    check_scene(bare({"one": replica_scene(replica_traces.copies(averaged=averaged))}))


def test_acts_tell_how_far_the_copies_lie_apart(bare):
    page = bare({"one": replica_scene(replica_traces.copies())})
    picture(page).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.lk-time').textContent === 'step 0 · average'")
    assert "equal on all ranks, to the last bit" in facts(page)


def test_copies_that_drift_say_so(bare):
    trace = replica_traces.copies(averaged=False)
    (last,) = replica_scene(trace).moments[-1:]
    page = bare({"one": replica_scene(trace)})
    picture(page).focus()
    page.keyboard.press("End")
    page.wait_for_function("document.querySelector('.lk-time').textContent === 'step 1 · update'")
    assert f"differ by up to {last['after']:#.3g}" in facts(page)


def test_a_cell_tells_its_number(bare):
    trace = replica_traces.copies()
    scene, (one,) = replica_scene(trace), replicas(trace)
    page = bare({"one": scene})
    box = picture(page).bounding_box()
    each = (
        box["width"] - 12
    ) / 3  # a column of the picture; its weights are 2 x 2 cells of 11 pixels around the middle
    page.mouse.move(box["x"] + 6 + 1.5 * each - 5, box["y"] + 20 + 18 + 16)
    page.wait_for_function("document.querySelector('.lk-facts').textContent.includes('from input')")
    assert f"{one.weights[0, 1, scene.unit, 2]:.3g}" in facts(page) and "rank 1" in facts(page)


def test_another_output_can_be_picked(bare):
    scene = replica_scene(replica_traces.copies())
    page = bare({"one": scene})
    before = picture(page).screenshot()
    page.get_by_label("Which output of the layer").select_option(str(1 - scene.unit))
    page.wait_for_timeout(200)
    assert picture(page).screenshot() != before


def test_without_values_it_says_what_to_set(bare):
    page = bare({"one": replica_scene(examples.mixed())}, width=360)
    assert "value_limit_bytes" in page.locator(".lk-empty").inner_text()
    assert not is_cut(page)
