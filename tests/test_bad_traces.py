"""Traces that are cut, empty or damaged: every command says so, and no number is silently 0 or made of it."""

import json

import polars as pl
import pytest
from test_analysis import event, sync, trace_of
from typer.testing import CliRunner

from labkit import analysis, explain, report
from labkit.cli import app
from labkit.trace import Trace, TraceError, from_events, load

COMMANDS = ["analyze", "explain", "show"]


def whole() -> Trace:
    return trace_of(
        *[event(rank, "step", 0, 20) for rank in (0, 1)],
        event(0, "stage_forward", 0, 4, stage=0, microbatch=0),
        event(1, "stage_forward", 6, 10, stage=1, microbatch=0),
        plan={"pp": 2},
    )


def said(command: str, trace: Trace, folder) -> str:
    result = CliRunner().invoke(app, [command, str(trace.save(folder / "t.parquet"))])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_ranks_are_said_by_every_command(command, tmp_path):
    half = Trace(whole().events.filter(pl.col("rank") == 0), whole().meta)
    assert "1 of 2 ranks are missing from the trace (1)" in said(command, half, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_trace_is_said_by_every_command(command, tmp_path):
    assert "the trace holds no event, so nothing can be measured" in said(command, trace_of(), tmp_path)


def test_a_note_that_the_file_and_the_events_give_comes_once():
    half = Trace(whole().events.filter(pl.col("rank") == 0), whole().meta)
    (note,) = analysis.notes(half)
    again = half.with_meta(notes=("first", note))
    assert analysis.all_notes(again) == ["first", note]
    assert report.summary(again)["notes"] == ["first", note]
    assert report.describe(again).count(note) == explain.describe(again).count(note) == 1


def test_one_event_is_all_work():
    trace = trace_of(event(0, "stage_forward", 3, 9, stage=0, microbatch=0), ranks=1)
    assert analysis.breakdown(trace).row(0, named=True)["compute_ns"] == 6
    assert explain.explain(trace).is_empty()
    assert analysis.critical_path(trace).select("start_ns", "end_ns", "what").rows() == [(3, 9, "work")]


def test_one_sync_alone_has_a_cause():
    trace = trace_of(sync(0, "all_reduce", 2, 9), ranks=2)
    assert explain.explain(trace).select("cause", "duration_ns").rows() == [("partner not recorded", 7)]


def test_spans_that_overlap_are_work_once():
    rows = whole().events.to_dicts()
    trace = from_events([*rows, event(0, "stage_forward", 2, 8, stage=0, microbatch=1)], whole().meta)
    assert analysis.breakdown(trace)["compute_ns"].to_list() == [8, 4]
    assert analysis.bubble(trace).of_total == pytest.approx(1 - 12 / 20)


@pytest.mark.parametrize(
    "damage",
    [{"end_ns": None}, {"start_ns": None}, {"start_ns": 30, "end_ns": 25}, {"rank": None}, {"kind": None}],
    ids=str,
)
def test_events_without_usable_times_are_left_out_and_said(damage, tmp_path):
    bad = event(0, "stage_backward", 12, 18, stage=0, microbatch=0) | damage
    path = from_events([*whole().events.to_dicts(), bad], whole().meta).save(tmp_path / "t.parquet")
    trace = load(path)
    assert trace.events.equals(whole().events)
    assert trace.meta.notes == ("1 of 5 events without a rank, a start or an end at or after it are left out",)
    found = json.loads(CliRunner().invoke(app, ["analyze", str(path), "--json"]).output)
    assert found["notes"] == list(trace.meta.notes)
    assert [row["compute_ns"] for row in found["ranks"]] == [4, 4]


def test_a_time_that_is_no_number_is_refused(tmp_path):
    path = whole().save(tmp_path / "t.parquet")
    times = pl.read_parquet(path).with_columns(pl.lit(float("nan")).alias("end_ns"))
    times.write_parquet(path, metadata=pl.read_parquet_metadata(path))
    with pytest.raises(TraceError, match="holds values that no trace has"):
        load(path)
    result = CliRunner().invoke(app, ["explain", str(path)])
    assert (result.exit_code, "holds values that no trace has" in result.output) == (2, True)
