"""What a timeline works out on demand: the critical path and the causes of gaps."""

from itertools import pairwise

import example_traces as examples
import polars as pl
import pytest

from labkit import analysis
from labkit.view.answers import MAX_PATH_STEPS, gap_causes, path_segments
from labkit.view.timeline import timeline


def test_a_path_of_one_step_lasts_as_long_as_the_step_and_has_no_hole():
    found = path_segments(examples.one_f_one_b(num_steps=2), 1)
    segments = found["segments"]
    assert found["steps"] == [1]
    assert all(before[2] == after[1] for before, after in pairwise(segments))
    paths = analysis.critical_path(examples.one_f_one_b(num_steps=2), 1)
    assert sum(end - start for _, start, end, *_ in segments) == paths["duration_ns"].sum()


def test_segments_point_to_their_events():
    trace = examples.one_f_one_b()
    for rank, start, end, _, row in path_segments(trace, 0)["segments"]:
        event = trace.events.row(row, named=True)
        assert row >= 0 and event["rank"] == rank
        assert event["kind"] == "step" or event["start_ns"] <= start <= end <= event["end_ns"]


def test_all_steps_are_one_path_up_to_a_number_of_steps():
    found = path_segments(examples.one_f_one_b(num_stages=2, num_microbatches=2, num_steps=MAX_PATH_STEPS + 2), None)
    assert found["steps"] == list(range(MAX_PATH_STEPS))
    assert all(before[2] <= after[1] for before, after in pairwise(found["segments"]))


@pytest.mark.parametrize("make", [examples.empty, examples.single])
def test_traces_without_steps_have_answers_too(make):
    assert path_segments(make(), None)["steps"] == []
    assert gap_causes(make())["gaps"] == []


def test_causes_cover_all_time_without_work():
    trace = examples.one_f_one_b()
    found = gap_causes(trace)
    idle = analysis.breakdown(trace).select(pl.sum("idle_ns") + pl.sum("exposed_sync_ns")).item()
    assert sum(end - start for _, start, end, _ in found["gaps"]) == idle
    first = min(found["gaps"], key=lambda gap: (gap[1], gap[0]))
    assert "the pipeline is filling" in found["sentences"][first[3]]


def test_a_reader_who_asks_gets_an_answer_once_per_step():
    widget = timeline(examples.one_f_one_b(num_steps=2))
    assert widget.paths == {} and widget.causes == {}
    for message in ({"do": "path", "step": 1}, {"do": "path", "step": None}, {"do": "causes"}, {"do": "what?"}):
        widget._on_message(None, message, [])
    assert set(widget.paths) == {"1", ""} and widget.causes["gaps"]


def test_a_path_that_is_asked_for_from_the_start_is_there():
    assert set(timeline(examples.one_f_one_b(), step=0, path=True).paths) == {"0"}
