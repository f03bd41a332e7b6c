"""When a step of a rank begins and ends, and that a pipeline's gaps are its bubble, step by step."""

import polars as pl
import pytest
from test_analysis import event, sync, trace_of

from labkit import analysis
from labkit.analysis.steps import step_ends, windows
from labkit.replay import planned_trace
from labkit.schedule import SCHEDULES, Durations, generate
from labkit.trace import Trace


def two_steps() -> Trace:
    """Rank 1 ends step 0 at 6 and begins step 1 at 7; rank 0 ends step 0 at 10. Rank 1's next work is at 13."""
    return trace_of(
        event(0, "step", 0, 10),
        event(1, "step", 0, 6),
        event(1, "step", 7, 15, step=1),
        event(0, "step", 10, 17, step=1),
        event(0, "stage_backward", 0, 10, stage=0, microbatch=0),
        event(1, "stage_backward", 0, 6, stage=1, microbatch=0),
        event(0, "stage_forward", 10, 13, stage=0, microbatch=0, step=1),
        sync(0, "send", 13, 13, peer=1, axis="pp", step=1),
        sync(1, "recv", 7, 13, peer=0, axis="pp", step=1),
        event(1, "stage_forward", 13, 15, stage=1, microbatch=0, step=1),
        event(0, "optimizer", 13, 17, step=1),
        plan={"pp": 2},
    )


def test_a_step_lasts_until_its_pipeline_has_ended_it_or_the_next_begins():
    found = {rank: table.rows() for rank, table in windows(two_steps()).items()}
    assert found == {0: [(0, 0, 10), (1, 10, 17)], 1: [(0, 0, 7), (1, 7, 17)]}


def test_ends_name_the_last_rank():
    rows = step_ends(two_steps()).select("rank", "step", "end_ns", "last_ns", "last_rank").rows()
    assert rows == [(0, 0, 10, 10, 0), (0, 1, 17, 17, 0), (1, 0, 6, 10, 0), (1, 1, 15, 17, 0)]


def test_replicas_do_not_wait_for_each_others_steps():
    trace = trace_of(event(0, "step", 0, 10), event(1, "step", 0, 6), plan={"dp": 2})
    assert [table.rows() for table in windows(trace).values()] == [[(0, 0, 10)], [(0, 0, 6)]]


def test_pipelines_do_not_wait_for_each_others_steps():
    steps = [event(rank, "step", 0, end) for rank, end in enumerate((10, 6, 4, 8))]
    trace = trace_of(*steps, plan={"pp": 2, "dp": 2}, ranks=4)
    (first, second) = [set(group) for group in trace.meta.mesh.groups("pp")]
    ends = {rank: table["end_ns"][0] for rank, table in windows(trace).items()}
    assert {ends[rank] for rank in first} == {max((10, 6, 4, 8)[rank] for rank in first)}
    assert {ends[rank] for rank in second} == {max((10, 6, 4, 8)[rank] for rank in second)}


def test_every_gap_counts_with_the_step_it_waits_for():
    """Rank 1 drains step 0 from 6 to 10, also within its step 1, fills until 13, and drains step 1 from 15 to 17."""
    rows = analysis.gaps(two_steps()).filter(pl.col("rank") == 1)
    assert rows.select("step", "start_ns", "end_ns", "cause", "by_rank").rows() == [
        (0, 6, 7, "drain", 0),
        (0, 7, 10, "drain", 0),
        (1, 10, 13, "pipeline warm-up", 0),
        (1, 15, 17, "drain", 0),
    ]


@pytest.mark.parametrize("hop_ns", [0, 3])
@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"naive"}))
def test_causes_of_a_planned_pipeline_add_up_to_its_bubble(name, hop_ns):
    """Nothing but waiting for the pipeline, and all of it is what `bubble` calls idle."""
    one = Durations(forward=20, backward_input=20, backward_weight=20)
    trace = planned_trace(generate(name, 4, 8), one, hop_ns=hop_ns)
    gaps = analysis.gaps(trace)
    whole_ns = 4 * (trace.events["end_ns"].max() - trace.events["start_ns"].min())
    assert gaps["duration_ns"].sum() / whole_ns == pytest.approx(analysis.bubble(trace).of_total)
    assert set(gaps["cause"]) <= {"pipeline warm-up", "drain", "late p2p", "waiting in the order of work"}
    assert hop_ns or "late p2p" not in set(gaps["cause"])


@pytest.mark.parametrize(("name", "warm_up_ns", "drain_ns"), [("gpipe", 480, 240), ("1f1b", 360, 360)])
def test_warm_up_and_drain_of_a_planned_pipeline_by_hand(name, warm_up_ns, drain_ns):
    """F 20, B 40, p 4: (p - 1)(F + B) = 180 on every rank, 720 in all.

    GPipe has no forward left once the first backward comes: rank i fills for 20 i, waits (3 - i) 60 for its first
    backward, drains for 40 i. In 1F1B rank i has i forwards less to do before, and drains as much longer.
    """
    one = Durations(forward=20, backward_input=20, backward_weight=20)
    table = analysis.gaps(planned_trace(generate(name, 4, 8), one))
    sums = dict(table.group_by("cause").agg(pl.col("duration_ns").sum()).rows())
    assert sums == {"pipeline warm-up": warm_up_ns, "drain": drain_ns}
