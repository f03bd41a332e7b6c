"""Lesson 5 in the browser: one run over four links, a straight line, what hides, a what-if beside the real runs."""

import lesson_page as lesson
import pytest
from scene_checks import is_cut
from test_lesson_04 import EXPOSED, bars

import labkit
from labkit.link_study import bandwidth_of, link_table, replayed_steps, step_us, sync_times

NAME = "05_interconnect"
PLAN = labkit.Plan(
    dp=4, layers=4, width=256, global_batch=64, steps=3, time_scale=2000,
    pace="forward=50us,backward=100us", link="nvlink3", record=("compute", "sync"),
)  # fmt: skip
LINKS = ("nvlink3", "pcie4", "ib200", "eth10")


@pytest.fixture(scope="module")
def runs():
    return {link: labkit.recall(PLAN.vary(link=link)) for link in LINKS}


@pytest.fixture(scope="module")
def bucketed():
    return {link: labkit.recall(PLAN.vary(link=link, bucket_mb=0.1)) for link in LINKS}


def test_in_voila(voila, open_page, runs, bucketed):
    page = lesson.in_voila(open_page, voila, NAME)
    lesson.play(page, page.locator(".labkit-timeline"))
    sweep = [labkit.recall(PLAN.vary(link=f"latency=5us,bandwidth={rate}GB/s")) for rate in (300, 63, 32, 25)]
    took_us = (1e6 * sync_times(sweep)["took_s"]).to_list()
    assert lesson.chart_line(page, "Sync time against 1 / bandwidth", line=1) == pytest.approx(took_us)
    assert bars(page, "A step, taken apart", EXPOSED) == pytest.approx(link_table(bucketed)["exposed_us"].to_list())
    row = link_table(runs).filter(name="eth10").row(0, named=True)
    share = 100 * row["exposed_us"] / row["step_us"]
    assert lesson.answer(page, "which share of a step is exposed sync", f"{share:.0f}").startswith("Right.")
    assert lesson.answer(page, "How long does it take over 10 GB/s", "140").startswith("Right.")
    assert lesson.answer(page, "link of twice the speed", "15 µs").startswith("Not yet.")
    lesson.keep_picture(page, NAME)


@pytest.mark.full
def test_the_what_if_stands_beside_the_real_runs(voila, open_page, bucketed):
    page = lesson.in_voila(open_page, voila, NAME)
    drawn = lesson.chart_line(page, "A step against the link's bandwidth", line=2)
    by_bandwidth = sorted(bucketed.values(), key=bandwidth_of)
    assert drawn == pytest.approx([step_us(run) for run in by_bandwidth])
    text = page.inner_text("body").replace("\xa0", " ")
    for link in ("nvlink3", "ib200", "eth10"):
        found, real = replayed_steps(bucketed["pcie4"], [link])["step_us"][0], step_us(bucketed[link])
        assert f"{link}: replayed {found:.0f}, run {real:.0f} µs" in text
        assert abs(found / real - 1) < 0.15


def test_turning_the_link(voila, open_page):
    page = lesson.in_voila(open_page, voila, NAME, theme="dark", width=390)
    with lesson.another(page, page.locator(".labkit-timeline")):
        lesson.choose(page, "link", "eth10")
    page.locator(".labkit-timeline .lk-time", has_text=" s").wait_for()  # 5 s on this clock, where NVLink took 0.3
    assert not is_cut(page)
    lesson.keep_picture(page, f"{NAME}_narrow_dark")


@pytest.mark.full
def test_in_jupyterlab(jupyterlab, open_page):
    page, outputs = lesson.in_jupyterlab(open_page, jupyterlab, NAME)
    printed = lesson.printed(outputs)
    assert "NVLink 3 carries 9.4 times as much as PCIe 4" in printed
    assert "bytes: 904,764 by the slope, 904,764 by formula" in printed
    lesson.scroll_to_cell(page, 6)
    timeline = page.locator(".labkit-timeline")
    timeline.wait_for()
    lesson.play(page, timeline)
