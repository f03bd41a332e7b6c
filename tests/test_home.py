"""The home page's pictures: of the very runs that the notebooks are about."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import captures, home
from labkit.plan import Plan
from labkit.trace import Meta, from_events, load
from labkit.view.thumbnail import MAX_ROWS, WIDE, thumbnail

ASSETS = Path(__file__).parents[1] / "assets"
PIPELINE = load(ASSETS / "pipeline_1f1b.parquet")


def notebook(folder: Path, name: str, code: str = "", **metadata) -> Path:
    cells = [{"cell_type": "code", "source": [code]}]
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": metadata}))
    return path


def test_a_picture_holds_each_stages_work_once():
    picture = thumbnail(PIPELINE)
    assert (picture["source"], picture["rows"]) == ("paced", 4)
    backward = [span for span in picture["spans"] if span[3] == "backward"]
    assert len(backward) == 4 * 8  # ranks x microbatches of one step
    assert min(span[1] for span in picture["spans"]) == 0 and max(span[2] for span in picture["spans"]) == WIDE
    # rank 3 does its eight backwards without a hole but for the forwards between: 40 of 660 ms each
    assert all(abs((end - start) / WIDE - 40 / 660) < 0.01 for rank, start, end, _ in backward if rank == 3)


def test_a_trace_without_work_has_no_picture_and_one_of_many_ranks_shows_some():
    sys.path.insert(0, str(Path(__file__).parent / "view"))
    import example_traces as examples

    assert thumbnail(examples.empty()) is None
    assert thumbnail(examples.dense(4000, num_ranks=40))["rows"] == MAX_ROWS


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("trace = labkit.recall(labkit.Plan(pp=4, layers=8))", [Plan(pp=4, layers=8)]),
        ("Plan(dp=2)\nPlan(tp=2)", [Plan(dp=2), Plan(tp=2)]),
        ("Plan(dp=ranks)", []),
        ("Plan(pp=3, layers=8)", []),
        ("%matplotlib inline", []),
        ("plan.Plan(**values)", []),
        ("Plan(__import__('os').getpid())", []),
        ("net = dict(layers=8)\nranks = 4\nPlan(pp=ranks, **net)", [Plan(pp=4, layers=8)]),
        ("base = Plan(dp=2)\nbase.vary(dp=4)\nother.vary(pp=2)", [Plan(dp=2), Plan(dp=4)]),
        ("net = dict(layers=int('8'))\nPlan(pp=4, **net)", []),
    ],
)
def test_plans_are_read_from_code_without_running_it(code, found):
    assert list(dict.fromkeys(map(str, home.plans_in([code])))) == list(map(str, found))


def test_a_notebook_is_about_plans_that_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(captures, "CAPTURES", tmp_path)
    kept = Plan(pp=4, layers=8)
    captures.keep_capture(PIPELINE, kept)
    code = "labkit.Plan(dp=2)\nlabkit.Plan(pp=4, layers=8)"
    assert [trace.events.equals(PIPELINE.events) for trace in home.captures_of(notebook(tmp_path, "one", code))] == [
        True
    ]
    assert home.captures_of(notebook(tmp_path, "two", "labkit.Plan(dp=2)")) == []


def test_of_several_kept_runs_the_one_of_most_ranks_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(captures, "CAPTURES", tmp_path)
    alone = from_events([dict(rank=0, kind="stage_forward", step=0, start_ns=0, end_ns=9)], Meta("measured"))
    captures.keep_capture(alone, Plan())
    captures.keep_capture(PIPELINE, Plan(pp=4))
    assert home.picture_of(notebook(tmp_path, "one", "Plan()\nPlan(pp=4)")) == thumbnail(PIPELINE)
    assert home.picture_of(notebook(tmp_path, "two", "Plan()"))["rows"] == 1


def test_a_notebook_may_name_its_capture_but_no_other_file(tmp_path):
    named = notebook(tmp_path, "named", labkit={"capture": "pipeline_1f1b.parquet"})
    assert home.picture_of(named) == thumbnail(PIPELINE)
    assert home.captures_of(notebook(tmp_path, "odd", labkit={"capture": "../README.md"})) == []


def test_the_command_prints_a_picture_for_every_notebook_that_has_one(tmp_path):
    notebook(tmp_path, "named", labkit={"capture": "pipeline_1f1b.parquet"})
    (tmp_path / "broken.ipynb").write_text("{")
    command = [sys.executable, "-m", "labkit.home", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"named.ipynb": thumbnail(PIPELINE)}


@pytest.mark.parametrize("name", ["explorer", "compare", "your_trace"])
def test_every_tool_has_a_picture_of_its_own(name):
    folder = ASSETS.parent / "notebooks"
    pictures = {tool: home.picture_of(folder / f"{tool}.ipynb") for tool in ("explorer", "compare", "your_trace")}
    assert pictures[name] and all(pictures[name] != other for tool, other in pictures.items() if tool != name)
