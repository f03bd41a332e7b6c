"""The loss paths in a page without Jupyter."""

import example_traces as examples
import pytest
import weight_traces as weights
from scene_checks import check_scene, facts, is_cut, picture

from labkit.analysis.perceptron import mean_loss, perceptrons
from labkit.digits import digits
from labkit.view.loss_paths import loss_paths


@pytest.fixture(scope="module")
def runs():
    return {"large": weights.trained(4, hidden=4, batch=100), "small": weights.trained(6, hidden=4, batch=10)}


def test_it_is_a_scene_like_all(bare, runs):
    check_scene(bare({"one": loss_paths(runs)}))


def test_the_end_of_each_run_is_its_last_network(bare, runs):
    page = bare({"one": loss_paths(runs)})
    picture(page).focus()
    page.keyboard.press("End")
    told = facts(page)
    for trace, count in ((runs["large"], "3 updates, 300 images"), (runs["small"], "5 updates, 50 images")):
        assert count in told and f"{mean_loss(perceptrons(trace)[-1], *digits()):.2f}" in told


def test_with_as_many_images_the_large_batch_has_not_begun(bare, runs):
    page = bare({"one": loss_paths(runs)})
    page.get_by_label("What time counts").select_option("images")
    picture(page).focus()
    page.keyboard.press("End")
    page.locator(".lk-time", has_text="50 images each").wait_for()
    assert "0 updates, 0 images" in facts(page) and "5 updates, 50 images" in facts(page)


def test_points_are_told_one_by_one(bare, runs):
    page = bare({"one": loss_paths(runs)})
    picture(page).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = perceptrons(runs["large"])[1]
    assert "large, after 1 update" in facts(page) and f"{mean_loss(second, *digits()):.2f}" in facts(page)


def test_without_weights_it_says_so(bare):
    page = bare({"one": loss_paths({"run": examples.one_f_one_b()})}, width=360)
    assert "value_limit_bytes" in page.locator(".lk-empty").inner_text()
    assert not is_cut(page)
