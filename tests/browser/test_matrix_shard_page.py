"""The matrix shard scene in a page without Jupyter."""

import example_traces as examples
import pytest
import value_traces as values
from scene_checks import check_scene, facts, is_cut, picture

from labkit.view.matrix_shard import matrix_shard
from labkit.view.shards import shards_of


@pytest.mark.parametrize("cut", ["rows", "columns"])
def test_it_is_a_scene_like_all(bare, cut):
    check_scene(bare({"one": matrix_shard(values.cut_layer(cut))}))


def test_a_cell_tells_its_number(bare):
    trace = values.cut_layer("rows")
    page = bare({"one": matrix_shard(trace)})
    box = picture(page).bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 20)  # the first cell of the input
    page.wait_for_function("document.querySelector('.lk-facts').textContent.includes('value')")
    told = facts(page).replace("−", "-")
    assert f"{shards_of(trace)[0].inputs[0][0, 0]:.3g}" in told and "feature" in told


def test_acts_are_stepped_through_to_the_verdict(bare):
    page = bare({"one": matrix_shard(values.cut_layer("columns"))})
    picture(page).focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.lk-time').textContent === '4 · compare'")
    assert "difference" in facts(page)


def test_a_pair_says_that_nothing_is_sent_between(bare):
    page = bare({"one": matrix_shard(values.pair())})
    page.evaluate("document.querySelector('.lk-words').open = true")
    assert "goes into block0.down.weight" in page.locator(".lk-words").inner_text()
    page.get_by_label("Which weight").select_option("1")
    page.wait_for_function("document.querySelector('.lk-words').textContent.includes('cut by columns over 2 ranks')")
    assert "products are captured" in page.locator(".lk-words").inner_text()


def test_without_values_it_says_what_to_set(bare):
    page = bare({"one": matrix_shard(examples.mixed())}, width=360)
    assert "value_limit_bytes" in page.locator(".lk-empty").inner_text()
    assert not is_cut(page)
