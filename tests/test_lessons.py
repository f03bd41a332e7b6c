"""What every lesson keeps to: a question, short cells, a check, something to turn, outputs that are compared."""

import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
COMPARED, IGNORED = "keep_output", "nbval-ignore-output"
LIVE = re.compile(r"labkit\.(knobs|panel|place_work|dial|fault_lab)\(")


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def cells(request) -> list[dict]:
    return json.loads(request.param.read_text(encoding="utf-8"))["cells"]


def source(cell: dict) -> str:
    return "".join(cell["source"])


def code_of(cells: list[dict]) -> list[dict]:
    return [cell for cell in cells if cell["cell_type"] == "code"]


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def test_it_begins_with_a_question(cells):
    opening = source(cells[0])
    assert opening.startswith("# ") and "?" in opening


def lengths(cells: list[dict]) -> list[int]:
    return [len(source(cell).splitlines()) for cell in code_of(cells)]


def test_cells_are_short(cells):
    assert statistics.median(lengths(cells)) <= 8 and max(lengths(cells)) <= 16


def test_half_of_all_cells_have_six_lines_or_fewer():
    everything = [json.loads(path.read_text(encoding="utf-8"))["cells"] for path in LESSONS]
    assert statistics.median(length for cells in everything for length in lengths(cells)) <= 6


def test_prose_stands_between_pictures(cells):
    """Never more than three code cells in a row without a word."""
    kinds = "".join("c" if cell["cell_type"] == "code" else "m" for cell in cells)
    assert "cccc" not in kinds


def test_the_reader_is_asked_and_can_turn_something(cells):
    code = "\n".join(map(source, code_of(cells)))
    assert LIVE.search(code) and "labkit.ask(" in code


def test_outputs_are_either_compared_or_declared_to_differ(cells):
    for cell in code_of(cells):
        kept = COMPARED in tags(cell)
        assert bool(cell["outputs"]) == kept, source(cell)
        assert not (kept and IGNORED in tags(cell)), source(cell)
        assert cell["execution_count"] or not kept


def test_what_is_compared_is_plain_text_of_any_machine(cells):
    for output in (output for cell in code_of(cells) for output in cell["outputs"]):
        assert output["output_type"] in ("stream", "execute_result") and output.get("name") != "stderr"
        text = "".join(output.get("text", "")) + "".join(output.get("data", {}).get("text/plain", ""))
        assert text.strip() and not re.search(r"Traceback|/tmp/|/home/|/root/|0x[0-9a-f]{6}", text)


def test_something_is_compared_in_every_lesson():
    for path in LESSONS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert "puzzles" in path.stem or any(COMPARED in tags(cell) for cell in code_of(cells)), path.name


def test_lessons_are_numbered_without_a_gap():
    numbers = [int(path.name[:2]) for path in LESSONS]
    assert numbers == list(range(len(numbers)))
