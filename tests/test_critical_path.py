"""The critical path: by hand, on schedules whose longest chain is known, on a capture, and on any trace."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from test_analysis import event, late_all_reduce, random_traces, relaxed, sync, trace_of

from labkit import analysis
from labkit.replay import planned_trace
from labkit.schedule import Durations, generate
from labkit.trace import Trace, load

CAPTURE = Path(__file__).parents[1] / "assets" / "pipeline_1f1b.parquet"


def test_critical_path_by_hand():
    path = analysis.critical_path(late_all_reduce())
    found = [(row["rank"], row["start_ns"], row["end_ns"], row["what"]) for row in path.to_dicts()]
    assert found == [(1, 0, 5, "work"), (0, 5, 9, "bandwidth-bound sync"), (0, 9, 10, "work")]


def message() -> Trace:
    """Stage 0 works to 4, its message is there at 6, stage 1 works from 7 to 9 and ends its step at 10."""
    return trace_of(
        event(0, "step", 0, 4),
        event(1, "step", 0, 10),
        event(0, "stage_forward", 0, 4, stage=0, microbatch=0),
        event(0, "forward", 0, 4, stage=0, microbatch=0, layer="fc0"),
        sync(0, "send", 4, 4, peer=1, axis="pp", microbatch=0),
        sync(1, "recv", 0, 6, peer=0, axis="pp", microbatch=0),
        event(1, "stage_forward", 7, 9, stage=1, microbatch=0),
        plan={"pp": 2},
    )


def test_critical_path_follows_a_message_to_its_sender():
    path = analysis.critical_path(message())
    found = path.select("rank", "start_ns", "end_ns", "what").rows()
    host = "host/launch overhead"
    assert found == [(0, 0, 4, "work"), (1, 4, 6, "late p2p"), (1, 6, 7, host), (1, 7, 9, "work"), (1, 9, 10, host)]


def test_each_segment_names_its_row_in_the_trace():
    """The innermost work, the message that was waited for, and the step where nobody was."""
    trace = message()
    rows = trace.events[analysis.critical_path(trace)["event"].to_list()]
    found = rows.select("rank", pl.col("kind").cast(pl.String), "op", "layer").rows()
    assert found == [
        (0, "forward", None, "fc0"),
        (1, "sync", "recv", None),
        (1, "step", None, None),
        (1, "stage_forward", None, None),
        (1, "step", None, None),
    ]


def test_the_paths_of_all_steps_cover_the_time_once():
    """Rank 1 begins step 1 at 6 and works at 8, while rank 0 ends step 0 at 10: the path of step 1 starts there."""
    trace = trace_of(
        event(0, "step", 0, 10),
        event(0, "stage_backward", 0, 10, stage=0, microbatch=0),
        event(1, "step", 0, 6),
        event(1, "stage_backward", 0, 6, stage=1, microbatch=0),
        event(1, "step", 6, 14, step=1),
        event(1, "stage_forward", 8, 14, stage=1, microbatch=0, step=1),
        event(0, "step", 10, 12, step=1),
        event(0, "stage_forward", 10, 12, stage=0, microbatch=0, step=1),
        plan={"pp": 2},
    )
    first, second = analysis.critical_path(trace, 0), analysis.critical_path(trace, 1)
    assert first.select("rank", "start_ns", "end_ns").rows() == [(0, 0, 10)]
    assert second.select("rank", "start_ns", "end_ns").rows() == [(1, 10, 14)]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb_h1", "zbv", "interleaved_1f1b"])
def test_a_planned_pipeline_is_as_long_as_its_work_and_hops_on_the_path(name):
    """Who waits for data that is not computed yet is not on the path; only messages on their way are."""
    one = Durations(forward=20, backward_input=20, backward_weight=20)
    trace = planned_trace(generate(name, 4, 8), one, hop_ns=5)
    path = analysis.critical_path(trace)
    on_the_way = path.filter(pl.col("what") == "late p2p")
    assert set(path["what"]) == {"work", "late p2p"}
    assert set(on_the_way["duration_ns"]) == {5}
    assert path["duration_ns"].sum() == trace.events["end_ns"].max()


def test_a_captured_step_is_as_long_as_its_path():
    trace = load(CAPTURE)
    steps = trace.of("step").group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("step")
    begun_ns = steps["start_ns"][0]
    for step, end_ns in steps.select("step", "end_ns").iter_rows():
        path = analysis.critical_path(trace, step)
        assert path["start_ns"].to_list() == [begun_ns, *path["end_ns"].to_list()[:-1]]
        assert path["end_ns"].to_list()[-1] == end_ns
        begun_ns = end_ns


def test_events_on_a_captured_path_are_of_its_ranks_and_times():
    trace = load(CAPTURE)
    path = analysis.critical_path(trace)
    told = path.filter(pl.col("event").is_not_null())
    assert told.height >= path.height - 1  # between two steps there is no event
    rows = trace.events[told["event"].to_list()]
    assert rows["rank"].to_list() == told["rank"].to_list()
    work = told["what"] == "work"
    assert (rows.filter(work)["start_ns"] <= told.filter(work)["start_ns"]).all()
    assert (rows.filter(work)["end_ns"] >= told.filter(work)["end_ns"]).all()
    assert set(rows["step"].to_list()) == {trace.events["step"].max()}


def test_an_unknown_step_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="step 9 is not in the trace: it has steps 0 to 0"):
        analysis.critical_path(late_all_reduce(), step=9)


@relaxed
@given(random_traces())
def test_critical_path_has_no_hole(trace):
    path = analysis.critical_path(trace)
    assert path["start_ns"].to_list()[1:] == path["end_ns"].to_list()[:-1]
    assert (path["duration_ns"] > 0).all()
