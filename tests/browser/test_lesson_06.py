"""Lesson 6 in the browser: a cut matrix with its true numbers, a GPT's syncs, checks and knobs."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit.analysis import syncs_per_step
from labkit.view.shards import shards_of

NAME = "06_tensor_parallelism"
PLAN = labkit.Plan(
    tp=2, layers=2, width=16, global_batch=12, steps=2, dtype="float64", value_limit_bytes=8192
)  # fmt: skip
GPT = labkit.Plan(
    task="chars", tp=2, layers=2, width=32, context=16, global_batch=4, steps=3, dtype="float64",
    pace="forward=20ms,backward=40ms", link="latency=0.2ms,bandwidth=100MB/s", time_scale=20,
)  # fmt: skip


def test_in_voila(voila, open_page):
    by_rows, by_columns = shards_of(labkit.recall(PLAN, verify=True))
    assert (by_rows.cut, by_columns.cut) == ("rows", "columns")
    page = lesson.in_voila(open_page, voila, NAME, num_forms=2)
    matrix = page.locator(".labkit-matrix-shard").first
    lesson.play(page, matrix)
    assert "difference" in lesson.told(page, matrix, "End").lower()
    matrix.get_by_label("Which weight").select_option("1")  # fc1, by columns
    assert "difference" in lesson.told(page, matrix, "End").lower()
    inside = page.locator(".labkit-matrix-shard").last
    inside.get_by_label("Which weight").select_option("5")
    assert "difference" in lesson.told(page, inside, "End").lower()
    text = page.inner_text("body").replace("\xa0", " ")
    assert "out, by columns: off by 0.000000000000" in text
    for shard in (by_rows, by_columns):
        assert f"{shard.name}, by {shard.cut}" in text and shard.max_difference < 1e-12
    assert lesson.answer(page, "How many numbers does each rank hold", "524,288").startswith("Right.")
    assert lesson.answer(page, "A ReLU may follow", "its summands must be added first").startswith("Right.")
    assert lesson.answer(page, "if it had 96 blocks", "100").startswith("Not yet.")
    assert lesson.answer(page, "if it had 96 blocks", "386").startswith("Right.")
    lesson.keep_picture(page, NAME)


def test_turning_its_knobs(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, num_forms=2, theme="dark", width=390)
    matrix, timeline = page.locator(".labkit-matrix-shard").nth(1), page.locator(".labkit-timeline").nth(1)
    with lesson.another(page, matrix):
        lesson.turn(page, "tp", 1)  # 2, 4
    assert matrix.get_by_text("digits, tp 4").is_visible()
    lesson.play(page, matrix)
    with lesson.another(page, timeline):
        lesson.choose(page, "sequence_parallel", "on", form=1)
    lesson.play(page, timeline)
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow_dark")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    printed = lesson.printed(outputs)
    assert printed.count("largest difference 0.000000000000") == 2 and "blocks 4: syncs 18, and" in printed
    cut_too = labkit.recall(GPT.vary(sequence_parallel=True), verify=True)
    for row in syncs_per_step(cut_too).to_dicts():
        assert f"{row['count']:g} {row['op']}" in printed
    assert printed.count("off by 0.000000000000") == 8
    lesson.scroll_to_cell(page, 2)
    matrix = page.locator(".labkit-matrix-shard").first
    matrix.wait_for()
    lesson.play(page, matrix)
