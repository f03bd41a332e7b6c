"""The batch flow scene in a page without Jupyter."""

import example_traces as examples
import numpy as np
import pytest
from scene_checks import check_scene, is_cut, picture

from labkit.view.batch_flow import batch_flow

IMAGES = np.random.default_rng(0).random((512, 8, 8))


@pytest.mark.parametrize("make", [examples.one_f_one_b, examples.data_parallel])
def test_it_is_a_scene_like_all(bare, make):
    check_scene(bare({"one": batch_flow(make(), IMAGES)}))


def test_pointing_at_a_microbatch_tells_its_samples_and_selects_its_load(bare):
    trace = examples.data_parallel()
    page = bare({"one": batch_flow(trace, IMAGES, step=1)})
    picture(page).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.querySelector('.lk-facts').textContent.includes('16, 17, 18')")
    page.keyboard.press("Enter")
    event = trace.events.row(page.evaluate("models[0].get('selected')"), named=True)
    assert (event["kind"], event["rank"], event["step"]) == ("load", 1, 1)


def test_an_event_selected_elsewhere_is_marked_here(bare):
    trace = examples.one_f_one_b()
    row = trace.events.with_row_index("row").filter(kind="stage_forward", microbatch=2)["row"][0]
    page = bare({"one": batch_flow(trace, IMAGES)})
    page.evaluate(f"models[0].set('selected', {row})")
    page.wait_for_function("document.querySelector('.lk-facts').textContent.includes('microbatch 2')")


def test_without_samples_it_says_so(bare):
    page = bare({"one": batch_flow(examples.mixed(), IMAGES)}, width=360)
    assert "names its samples" in page.locator(".lk-empty").inner_text()
    assert not is_cut(page)
