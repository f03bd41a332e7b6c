"""The memory scene sends what every rank held, whenever it changed, and which event told it."""

import example_traces as examples
import memory_traces
import numpy as np
import pytest

from labkit import analysis
from labkit.view.memory_lanes import memory_lanes


def test_lanes_are_those_of_the_analysis():
    trace = memory_traces.piles()
    scene, lanes = memory_lanes(trace), analysis.memory_lanes(trace)
    for name in ("param_bytes", "activation_bytes"):
        np.testing.assert_array_equal(np.frombuffer(scene.columns[name], "<f8"), lanes[name].to_numpy())
    assert sum(scene.counts) == lanes.height
    assert scene.steps == [[0, 0, 9_000_000], [1, 9_000_000, 18_000_000]]


def test_every_change_points_to_the_event_that_told_it():
    trace = memory_traces.piles()
    scene = memory_lanes(trace)
    rows, t = np.frombuffer(scene.columns["held_row"], "<u4"), np.frombuffer(scene.columns["held_t"], "<f8")
    told = trace.events[rows.tolist()]
    np.testing.assert_array_equal(told["end_ns"].to_numpy(), t)
    np.testing.assert_array_equal(told["grad_bytes"].to_numpy(), np.frombuffer(scene.columns["grad_bytes"], "<f8"))


@pytest.mark.parametrize(("trace", "note"), [(examples.empty(), "no events"), (examples.mixed(), "held in memory")])
def test_without_memory_it_says_what_to_set(trace, note):
    missing = memory_lanes(trace).missing
    assert note in missing and "'memory'" in missing


def test_a_rank_that_tells_nothing_has_an_empty_lane():
    trace = memory_traces.piles(1).with_meta(num_ranks=3)
    assert memory_lanes(trace).counts[1:] == [0, 0]


def test_a_step_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"steps \[0, 1\]"):
        memory_lanes(memory_traces.piles(), step=5)
