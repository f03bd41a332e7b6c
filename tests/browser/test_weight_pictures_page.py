"""The weight pictures in a page without Jupyter."""

import example_traces as examples
import numpy as np
import pytest
import weight_traces as weights
from scene_checks import check_scene, facts, is_cut, picture

from labkit.analysis.perceptron import perceptrons, probabilities
from labkit.digits import digits
from labkit.view.esm import STATIC
from labkit.view.weight_pictures import weight_pictures

CELL = """async (geometry) => {
  const { placePictures } = await import(`data:text/javascript,${encodeURIComponent(geometry)}`);
  const { weight } = placePictures(10, document.querySelector(".lk-picture").clientWidth).panels[2];
  return [weight.x + 3.5 * weight.cell, weight.y + 1.5 * weight.cell];
}"""
"""Where the weight of unit 2 for the pixel in row 1, column 3 lies."""


@pytest.mark.parametrize("hidden", [0, 8])
def test_it_is_a_scene_like_all(bare, hidden):
    check_scene(bare({"one": weight_pictures(weights.trained(4, hidden=hidden))}))


def test_what_it_says_of_an_image_is_what_the_network_says(bare):
    trace = weights.trained(4)
    page = bare({"one": weight_pictures(trace, samples=[3, 5])})
    page.get_by_label("Which image").select_option(label="image 5: a 5")
    picture(page).focus()
    page.keyboard.press("End")
    right = probabilities(perceptrons(trace)[3], digits()[0][[5]])[0, 5]
    told = facts(page)
    assert "step 3 · forward" in told and f"{100 * right:.0f} %" in told
    assert f"{-np.log(right):.2f}" in told and f"{trace.meta.losses[3]:.2f}" in told


def test_pointing_at_a_weight_tells_its_update(bare):
    trace = weights.trained(3)
    page = bare({"one": weight_pictures(trace)})
    picture(page).focus()
    page.keyboard.press("ArrowRight")  # the first forward is done
    x, y = page.evaluate(CELL, (STATIC / "weight_pictures_geometry.js").read_text())
    picture(page).hover(position={"x": x, "y": y})
    before, after = (perceptrons(trace)[step].weights[0][2, 11] for step in (0, 1))
    told = facts(page).replace("−", "-")
    assert "digit 2, pixel 1, 3" in told
    assert f"{before:.3g}" in told.replace("\n", " ") and f"{after:.3g}" in told and "weight - 0.5 × gradient" in told


def test_change_since_the_start_begins_with_nothing(bare):
    page = bare({"one": weight_pictures(weights.trained(3))})
    noise = picture(page).screenshot()
    page.get_by_label("What the pictures show").select_option("change")
    assert "change, from" in page.locator(".lk-legend").inner_text()
    assert picture(page).screenshot() != noise


def test_without_weights_it_says_so(bare):
    page = bare({"one": weight_pictures(examples.one_f_one_b())}, width=360)
    assert "value_limit_bytes" in page.locator(".lk-empty").inner_text()
    assert not is_cut(page)
