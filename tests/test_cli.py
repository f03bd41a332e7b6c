"""The command line: one flag for each field of a plan, one object of JSON, readable errors."""

import dataclasses
import inspect
import json

import pytest
from typer.testing import CliRunner

from labkit.cli import app, run
from labkit.cli.common import save
from labkit.plan import Plan
from labkit.trace import Meta, Trace, from_events

RUNNER = CliRunner()


def invoke(*arguments: str):
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


def test_a_flag_for_every_field_of_a_plan():
    flags = set(inspect.signature(run.run).parameters)
    assert {f.name for f in dataclasses.fields(Plan)} <= flags


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--schedule", "gpip", "--pp", "2"], ["unknown schedule 'gpip'", "dualpipev"]),
        (["--task", "digit"], ["unknown task 'digit'", "chars"]),
        (["--dp", "2", "--pp", "3", "--layers", "8", "--global-batch", "12"], ["8 layers do not split"]),
        (["--plan", "no-such.json"], ["cannot read the plan file"]),
        (["--out", "no/such/folder/t.parquet"], ["cannot write"]),
        (["--pace", "forward=fast"], ["is not a time"]),
        (["--link", "eth10", "--link", "tp:pcie4"], ["name the axis of each"]),
        (["--split", "a,b"], ["whole numbers"]),
        (["--backend", "nccl", "--dp", "9", "--global-batch", "9"], ["needs a GPU per rank"]),
    ],
)
def test_bad_input_is_refused_in_words_before_anything_starts(arguments, words):
    result = invoke("run", *arguments)
    assert result.exit_code == 2
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.output


def test_out_never_replaces_a_device(tmp_path):
    result = invoke("run", "--out", "/dev/null")
    assert result.exit_code == 2
    assert "cannot write /dev/null" in result.stderr


def test_what_is_no_trace(tmp_path):
    (tmp_path / "x.parquet").write_text("no")
    assert invoke("show", tmp_path / "x.parquet").exit_code == 2
    assert invoke("merge", tmp_path).exit_code == 2


def test_help_names_the_commands():
    result = invoke("--help")
    assert all(command in result.output for command in ("run", "show", "merge", "doctor", "lab"))


@pytest.mark.engine
def test_run_prints_one_object_with_what_was_promised(tmp_path):
    (tmp_path / "plan.json").write_text(Plan(pp=2, layers=4, dtype="float64").to_json())
    out = tmp_path / "trace.parquet"
    result = invoke("run", "--plan", tmp_path / "plan.json", "--steps", 2, "--verify", "--json", "--out", out)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["kind"] == "measured"
    assert facts["world_size"] == 2
    assert facts["plan"]["steps"] == 2  # the flag wins over the file
    assert len(facts["losses"]) == 2
    assert facts["equality"]["weight_max_abs_diff"] <= 1e-12
    assert facts["counts"]["forward"] == 4 * facts["plan"]["microbatches"] * 2
    assert facts["sync"]["pp"]["count"] == 2 * facts["plan"]["microbatches"]
    assert 0 < facts["bubble_fraction"] < 1 and facts["bubble_of_ideal"] > 0
    assert set(facts["seconds"]) == {"to_first_step", "step_median", "total"}
    assert facts["dropped_events"] == 0
    assert len(facts["memory_peak_bytes"]) == 2 and min(facts["memory_peak_bytes"]) > 0
    shown = invoke("show", out)
    assert "digits, pp 2, 1f1b (measured)" in shown.output


@pytest.mark.engine
def test_without_json_it_is_for_reading():
    result = invoke("run", "--dp", 2, "--steps", 2, "--verify", "--link", "dp:eth10", "--time-scale", 1000)
    assert result.exit_code == 0
    assert "replicas bit-identical" in result.output
    assert "1000 times slower" in result.output


@pytest.mark.engine
def test_a_trace_that_cannot_be_saved_is_not_lost(tmp_path, monkeypatch):
    from labkit.trace import Trace

    save, failed = Trace.save, []

    def full_at_first(self, path):
        if not failed:
            failed.append(path)
            raise OSError(28, "No space left on device")
        return save(self, path)

    monkeypatch.setattr(Trace, "save", full_at_first)
    result = invoke("run", "--dp", 2, "--out", tmp_path / "t.parquet")
    assert result.exit_code == 1
    assert "The trace is not lost: it is in" in result.stderr


def test_nothing_is_left_where_no_place_takes_the_trace(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trace, "save", full)
    with pytest.raises(OSError, match="No space left"):
        save(from_events([], Meta("planned")), tmp_path / "t.parquet")
    assert not list(tmp_path.iterdir())
