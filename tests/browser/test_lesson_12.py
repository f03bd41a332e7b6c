"""Lesson 12 in the browser: a schedule is placed by hand and really run, a straggler is found, the score counts."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit import schedule

NAME = "12_puzzles"


def place(page, board, order: str) -> None:
    """Press the board's buttons in an order in which each is possible: 1F1B, rank by rank as soon as it can."""
    left = [[cell.partition("F" if "F" in cell else "B") for cell in line.split(",")] for line in order.splitlines()]
    while any(left):
        for rank, cells in enumerate(left):
            if cells:
                _, kind, _ = cells[0]
                button = board.locator(".lk-row").nth(rank).locator(".lk-next").nth("FB".index(kind))
                if "lk-not-yet" not in (button.get_attribute("class") or ""):
                    button.click()
                    cells.pop(0)


def test_a_schedule_is_placed_and_run(voila, open_page):
    page = open_page(f"{voila}/voila/render/{NAME}.ipynb", height=1000)
    page.locator(".labkit-score").wait_for()
    board = page.locator(".labkit-place-work").first
    board.locator(".lk-row").nth(2).locator(".lk-next").first.click()  # F0 on rank 2, before rank 1 has done it
    assert "F0 on rank 2 needs what F0 on rank 1 gives" in board.locator(".lk-reply").inner_text()
    place(page, board, schedule.generate("1f1b", 3, 4, 1).to_text())
    assert board.locator(".lk-reply").inner_text().startswith("Done in 18, which is the target")
    board.get_by_role("button", name="Run it").click()
    player = page.locator(".labkit-timeline").first
    player.get_by_text("digits, pp 3, own").wait_for()
    assert "1 of 5 solved in 1 try" in page.locator(".labkit-score input").input_value()
    lesson.keep_picture(page, NAME)


@pytest.mark.full
def test_the_straggler_and_the_other_checks(voila, open_page):
    page = open_page(f"{voila}/voila/render/{NAME}.ipynb?theme=dark", width=390, height=1000)
    page.locator(".labkit-score").wait_for()
    lesson.play(page, page.locator(".labkit-timeline").first)
    replies = [lesson.answer(page, "Which rank do the others wait for?", f"rank {rank}") for rank in range(4)]
    assert sorted(reply.startswith("Right.") for reply in replies) == [False, False, False, True]
    assert lesson.answer(page, "How many syncs does one training step", "11").startswith("Right.")
    assert lesson.answer(page, "How long does the fastest plan", "1").startswith("Not yet.")
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, _ = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    lesson.scroll_to_cell(page, 2)
    page.locator(".labkit-place-work").first.wait_for()


def test_eleven_syncs_are_what_the_run_has():
    trace = labkit.recall(labkit.Plan(tp=2, layers=12, steps=2, record=("compute", "sync")))
    assert int(labkit.analysis.syncs_per_step(trace)["count"].sum()) == 11
