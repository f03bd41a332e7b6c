"""What `make soak` writes is what was counted."""

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "soak"


@pytest.fixture(scope="module")
def soak():
    sys.path.insert(0, str(HERE))
    spec = importlib.util.spec_from_file_location("soak_main", HERE / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(HERE))


def faulted(soak, **more):
    values = {
        "num_runs": 10, "by_what": {"kill": 7, "stop": 3}, "loud_s": [0.2, 0.4, 0.3], "silent_s": [2.5],
        "rss_before": 100_000_000, "rss_after": 103_000_000, "left": {"threads": 0}, "seconds": 61.4,
    }  # fmt: skip
    return soak.Figures(**values | more)


def test_the_page_holds_every_count_of_the_faults(soak):
    figures = faulted(soak, wrong=["Plan(): on purpose: blamed rank 0"], orphans=1, untold=4)
    page = soak.faults_part(figures)
    for words in (
        "10, in two processes side by side, in 61 s", "kill 7, stop 3", "0.30 (median), 0.40 (most), 3 times",
        "2.50 (median)", "none happened", "| threads left at the end | 0 |", "100.0 MB, 103.0 MB (+3.0 %)",
        "still there after the error | 1 |", "- Plan(): on purpose: blamed rank 0", "no rank could be named | 4 |",
    ):  # fmt: skip
        assert words in page


def test_figures_of_two_processes_are_added_and_the_memory_is_that_of_the_worse(soak):
    total = soak.Figures()
    total.add(faulted(soak, untold=1))
    total.add(faulted(soak, rss_after=108_000_000, left={"threads": 2}))
    total.add(faulted(soak))
    assert (total.num_runs, total.by_what, total.untold) == (30, {"kill": 21, "stop": 9}, 1)
    assert total.left == {"threads": 2} and len(total.loud_s) == 9 and total.grown_percent == pytest.approx(8)


def test_what_must_not_happen_is_told(soak):
    assert soak.missed_by_faults(faulted(soak)) == []
    bad = faulted(soak, loud_s=[5.5], left={"threads": 2}, rss_after=106_000_000, orphans=3)
    said = ["2 threads left", "an error after 5.5 s", "memory grew by 6.0 %", "3 ranks still there"]
    assert all(words in one for words, one in zip(said, soak.missed_by_faults(bad), strict=True))
    visit = soak.visitors.Visit(5, failure="Cancelled.")
    assert len(soak.missed_by_class(soak.visitors.Figures([visit], 8))) == 2


def _two_in_seven(num, seed):
    from any_input import Counts

    return Counts(num, refused=2, longest_s=seed / 1000, wrong=["ValueError: no"])


def test_parts_are_added_and_an_end_that_does_not_come_is_told(soak):
    counts = soak.any_input.in_parts(_two_in_seven, 2007, seed=3, at_once=1)
    assert (counts.num, counts.refused, counts.longest_s, len(counts.wrong)) == (2007, 6, 3.002, 3)
    page = soak.input_part(counts, soak.Counts(7, hung=1))
    assert "| how many | 2,007 | 7 |" in page and "| that never ended | 0 | 1 |" in page


def test_a_plan_at_odds_with_itself_is_found(soak):
    counts = soak.any_input.plans(60, seed=5)
    assert counts.num == 60 and 0 < counts.refused < 60
    spoiled = soak.any_input.Plan(pp=2, microbatches=4)
    object.__setattr__(spoiled, "layers", 5)
    with pytest.raises(AssertionError):
        soak.any_input.check(spoiled)
    assert soak.any_input.files(60, seed=5).wrong == []


def test_a_visitor_is_right_only_with_its_own_whole_and_proven_run(soak):
    visit = soak.visitors.Visit
    right = {"steps": 5, "steps_done": [5] * 4, "proof": True, "asked_s": 1.0, "at_work": [3.0, 4.0]}
    assert visit(**right).is_right and visit(**right).waited_s == 2.0
    for wrong in ({"steps_done": [6] * 4}, {"steps_done": [5] * 3}, {"proof": False}, {"failure": "Cancelled."}):
        assert not visit(**right | wrong).is_right
    page = soak.class_part(soak.visitors.Figures([visit(**right), visit(**right | {"proof": False})], seats=8))
    assert "| visitors, all at once | 2 |" in page and "equal to the serial one | 1 |" in page
