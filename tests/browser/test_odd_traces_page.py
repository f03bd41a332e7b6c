"""Odd traces on a narrow page: a picture or a readable note for every scene, nothing cut, no script error."""

import odd_traces as odd
import pytest
from scene_checks import is_cut

INKED = """() => [...document.querySelectorAll('[data-widget]')].map((place) => {
    const empty = place.querySelector('.lk-empty'), canvas = place.querySelector('.lk-picture');
    if (empty) return empty.textContent.length > 30;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, Math.min(canvas.height, 2000));
    return data.some((value) => value > 0) && canvas.clientHeight < 16000; })"""
"""For every scene whether there is something to see: a note, or a picture that is no mere blank."""


@pytest.mark.parametrize("oddity", odd.ODD)
def test_there_is_something_to_see(bare, oddity):
    page = bare({name: make(odd.ODD[oddity](name)) for name, make in odd.SCENES.items()}, width=360)
    pictures = page.locator(".lk-picture")
    for number in range(pictures.count()):
        pictures.nth(number).focus()
        for key in ("ArrowRight", "ArrowDown", "Enter", "End"):
            page.keyboard.press(key)
    page.wait_for_timeout(200)
    assert page.evaluate(INKED) == [True] * len(odd.SCENES)
    assert not is_cut(page)
    assert page.locator("img").count() == 0 and page.title() == "players"
