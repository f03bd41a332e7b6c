"""Lesson 4 in the browser: copies that stay equal or drift, messages of an all-reduce, buckets, checks and knobs."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut

import labkit
from labkit.analysis.replicas import drift
from labkit.link_study import link_table
from labkit.view.all_reduce_costs import all_reduce_costs

NAME = "04_synchronization"
COPIES = dict(dp=4, layers=1, global_batch=64, steps=6, lr=0.1, value_limit_bytes=2560, record=("sync",))
SMALL = labkit.Plan(dp=4, layers=2, width=10, global_batch=64, steps=1, grad_sync="gather", record=("sync",))
PACED = dict(dp=4, layers=8, global_batch=64, steps=3, pace="forward=50ms,backward=100ms", record=("compute", "sync"))
EXPOSED = 2  # of the bars of a step: compute, hidden, exposed, idle


def bars(page, title: str, part: int) -> list[float]:
    """Lengths of one part of the bars in the chart of that title."""
    chart = page.locator(".labkit-chart").filter(has=page.get_by_text(title, exact=True)).last
    chart.locator(".main-svg").first.wait_for()
    return chart.locator(".js-plotly-plot").evaluate("(plot, part) => plot.calcdata[part].map((bar) => bar.s)", part)


def test_in_voila(voila, open_page):
    off = labkit.recall(labkit.Plan(grad_sync="off", **COPIES), verify=True)
    page = lesson.in_voila(open_page, voila, NAME, num_forms=3)
    copies = page.locator(".labkit-replicas").first
    lesson.play(page, copies)
    assert "weights afterwards equal on all ranks, to the last bit" in " ".join(
        lesson.told(page, copies, "End").split()
    )
    assert lesson.answer(page, "Which gradient does rank 3 use", "0.6").startswith("Not yet.")
    assert lesson.answer(page, "Which gradient does rank 3 use", "0.2").startswith("Right.")
    apart = drift(off)["difference"][:6].to_list()  # the weight comes before its bias
    assert lesson.chart_line(page, "How far the copies lie apart", line=0) == [0.0] * 6
    assert lesson.chart_line(page, "How far the copies lie apart", line=1) == pytest.approx(apart)
    assert lesson.answer(page, "do all ranks send in every round", "ring").startswith("Right.")
    assert lesson.answer(page, "How many GB does each of them send", f"{2 * 63 / 64 * 10:.1f}").startswith("Right.")
    assert lesson.answer(page, "very many very small buckets", "it takes more bytes").startswith("Not yet.")
    lesson.keep_picture(page, NAME)


@pytest.mark.full
def test_charts_show_what_the_runs_say(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, num_forms=3)
    gathers = all_reduce_costs(labkit.recall(SMALL.vary(grad_sync="gather", dp=n)) for n in (2, 4, 8))
    assert lesson.chart_line(page, "What the busiest rank sends", line=1) == gathers["sent"].to_list() == [1, 3, 7]
    assert lesson.chart_line(page, "Rounds, one message after the other", line=1) == [2, 6, 14]
    plans = [labkit.Plan(link="latency=1ms,bandwidth=4MB/s", bucket_mb=size, **PACED) for size in (25.0, 0.04, 0.02)]
    table = link_table({str(plan.bucket_mb): labkit.recall(plan) for plan in plans})
    assert bars(page, "A step, taken apart", EXPOSED) == pytest.approx((table["exposed_us"] / 1e3).to_list())
    assert table["exposed_us"][0] > 2 * table["exposed_us"][1]


def test_turning_its_knobs(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, num_forms=3, theme="dark", width=390)
    copies, messages = page.locator(".labkit-replicas").nth(1), page.locator(".labkit-all-reduce")
    with lesson.another(page, copies):
        lesson.choose(page, "grad_sync", "off", form=0)
    assert "differ by up to" in lesson.told(page, copies, "End")
    with lesson.another(page, messages):
        lesson.choose(page, "grad_sync", "tree", form=1)
    messages.locator(".lk-time", has_text="/ 4").wait_for()  # rounds
    lesson.play(page, messages)
    with lesson.another(page, page.locator(".labkit-timeline")):
        lesson.turn(page, "bucket_mb", 1)
    lesson.play(page, page.locator(".labkit-timeline"))
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow_dark")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    printed = lesson.printed(outputs)
    assert "after five steps the weights differ by 0.0" in printed
    assert "not averaged: all copies equal: False" in printed and "ring: 14 rounds, 5,320 bytes" in printed
    lesson.scroll_to_cell(page, 3)
    copies = page.locator(".labkit-replicas").first
    copies.wait_for()
    lesson.play(page, copies)
