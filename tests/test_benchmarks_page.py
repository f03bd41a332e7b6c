"""What `make bench` writes: the page and the README say what the JSON holds, and a part replaces only its own rows."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "bench"


@pytest.fixture(scope="module")
def figures():
    sys.path.insert(0, str(HERE))
    import figures

    yield figures
    sys.path.remove(str(HERE))


def test_page_and_readme_hold_the_kept_rows(figures):
    rows = figures.kept_rows()
    assert rows and figures.TABLE.read_text(encoding="utf-8") == figures.page(rows)
    readme = figures.README.read_text(encoding="utf-8")
    assert figures.with_headlines(readme, rows) == readme


def test_a_test_replaces_only_its_own_rows(figures):
    def row(part: str, what: str) -> dict:
        return {"part": part, "what": what}

    old = [row("open::test_help", "a"), row("start::test_cold_run[DDP]", "b"), row("gone::test_gone", "c")]
    found = figures.merged(old, [row("open::test_help", "new"), row("open::test_import", "d")])
    assert [one["what"] for one in found] == ["b", "new", "d"]  # in the order of the parts; what is no more is gone


def test_exponents(figures):
    from growth import exponent, n_log_n, plot

    assert exponent([(1, 3), (10, 30), (100, 300)]) == pytest.approx(1)
    assert exponent([(2, 4), (4, 16), (8, 64)]) == pytest.approx(2)
    assert 1.0 < n_log_n([(1_000, 1), (10_000, 1)]) < 1.15
    assert plot({"a < b": [(1, 1), (2, 2)]}).count("<polyline") >= 3
