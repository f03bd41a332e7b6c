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


def test_the_page_holds_every_count(soak):
    figures = soak.Figures(
        10, {"kill": 7, "stop": 3}, [0.2, 0.4, 0.3], [2.5], [], ["Plan(): on purpose: blamed rank 0"], 1,
        100_000_000, 105_000_000, {"threads": 2}, 61.4,
    )  # fmt: skip
    page = soak.page(figures, seed=3)
    for words in (
        "10, one after the other in one process, in 61 s", "kill 7, stop 3", "0.30 (median), 0.40 (most), 3 times",
        "2.50 (median)", "none happened", "| threads left at the end | 2 |", "100.0 MB, 105.0 MB (+5.0 %)",
        "still there after the error | 1 |", "- Plan(): on purpose: blamed rank 0", "--runs 10 --seed 3",
    ):  # fmt: skip
        assert words in page


def test_a_visitor_is_right_only_with_its_own_whole_and_proven_run(soak):
    visit = soak.visitors.Visit
    right = {"steps": 5, "steps_done": [5] * 4, "proof": True, "asked_s": 1.0, "at_work": [3.0, 4.0]}
    assert visit(**right).is_right and visit(**right).waited_s == 2.0
    for wrong in ({"steps_done": [6] * 4}, {"steps_done": [5] * 3}, {"proof": False}, {"failure": "Cancelled."}):
        assert not visit(**right | wrong).is_right
    page = soak.class_part(soak.visitors.Figures([visit(**right), visit(**right | {"proof": False})], seats=8))
    assert "| visitors, all at once | 2 |" in page and "equal to the serial one | 1 |" in page
