"""The fault lab as a reader meets it: failures that really happen, and who noticed."""

import re

import pytest
from lesson_page import answer, choose, in_jupyterlab, in_voila, keep_picture, play, printed

NAME = "13_fault_lab"
IS_IDLE = "document.querySelector('.labkit-form').dataset.state === 'idle'"


def test_in_voila(open_page, voila):
    page = in_voila(open_page, voila, NAME)
    page.get_by_text("A slow link", exact=True).first.wait_for()
    text = page.inner_text("body")
    assert "rank 2 died: killed by SIGKILL" in text and "rank 2 (stopped)" in text
    play(page, page.locator(".labkit").filter(has_text="One slow rank").first)
    assert "Right" in answer(page, "What are the survivors in", "in a sync")
    assert "Right" in answer(page, "How many of the three survivors", "0")
    page.wait_for_function(IS_IDLE)
    choose(page, "what", "exit")
    page.get_by_text("rank 0 died: exit code 7").wait_for()
    keep_picture(page, "lesson_13")


@pytest.mark.full
def test_in_jupyterlab(open_page, jupyterlab):
    _, outputs = in_jupyterlab(open_page, jupyterlab, NAME)
    text = printed(outputs)
    assert "rank 2 died: killed by SIGKILL" in text
    assert re.search(r"rank 2 hangs: no rank had an event for 3 s", text)
    causes = re.findall(r"rank (\d): (\d+) % of its time: (.*)", text)
    assert {rank for rank, _, cause in causes if cause == "straggler"} == {
        "0",
        "1",
        "3",
    }  # and not rank 2, the slow one
    assert {rank for rank, _, cause in causes if cause == "bandwidth-bound sync"} == {"0", "1", "2", "3"}
