"""Counts of a step: operations over all ranks, microbatches held, growth with layers, the bubble on paper."""

import pytest

from labkit import schedule
from labkit.analysis import ideal_bubble, microbatches_held, operation_totals, operations_per_step
from labkit.analysis.per_layer import syncs_by_layers
from labkit.replay import planned_trace
from labkit.trace import Meta, Trace, from_events


def sync(rank, op, seq, step=0, *, group=(0, 1), peer=None, size=8, axis="dp"):
    at = 10 * seq + 100 * (step or 0)
    return dict(
        kind="sync", rank=rank, op=op, seq=seq, step=step, group=list(group), peer=peer, size_bytes=size, axis=axis,
        start_ns=at, end_ns=at + 5,
    )  # fmt: skip


def run_of(layers: int, num_syncs: int) -> Trace:
    rows = [sync(rank, "all_reduce", seq) for seq in range(num_syncs) for rank in (0, 1)]
    rows += [dict(kind="step", rank=rank, step=0, start_ns=0, end_ns=1000) for rank in (0, 1)]
    return from_events(rows, Meta("measured", plan={"layers": layers, "dp": 2}, num_ranks=2))


def test_a_collective_and_a_message_count_once_for_all_their_ranks():
    rows = [sync(rank, "all_reduce", seq, size=8 + 8 * seq) for seq in (0, 1) for rank in (0, 1)]
    rows += [sync(0, "send", 0, peer=1, axis="pp", size=4), sync(1, "recv", 0, peer=0, axis="pp", size=4)]
    trace = from_events(rows, Meta("measured", num_ranks=2))
    assert operations_per_step(trace).rows() == [("dp", "all_reduce", 2, 12.0), ("pp", "message", 1, 4.0)]
    assert operation_totals(trace) == {"dp": 2, "pp": 1}


def test_groups_side_by_side_count_apart():
    rows = [sync(rank, "all_reduce", 0, group=group) for group in ((0, 1), (2, 3)) for rank in group]
    assert operation_totals(from_events(rows, Meta("measured", num_ranks=4))) == {"dp": 2}


def test_setup_and_what_one_step_does_alone_do_not_count():
    rows = [sync(rank, "broadcast", 0, step) for step in (None, 1) for rank in (0, 1)]
    rows += [sync(rank, "all_reduce", step, step) for step in range(3) for rank in (0, 1)]
    table = operations_per_step(from_events(rows, Meta("measured", num_ranks=2)))
    assert table.select("op", "operations").rows() == [("all_reduce", 1)]


def test_no_syncs_make_no_operations():
    trace = from_events([dict(kind="step", rank=0, step=0, start_ns=0, end_ns=1)], Meta("measured"))
    assert operations_per_step(trace).is_empty() and operation_totals(trace) == {}


def test_the_line_through_the_counts_of_several_depths():
    found = syncs_by_layers([run_of(8, 7), run_of(2, 1), run_of(4, 3)])
    assert found.points == ((2, 1), (4, 3), (8, 7)) and (found.slope, found.offset) == (1, -1)
    assert found.is_straight and str(found) == "1 per layer − 1"
    assert str(syncs_by_layers([run_of(2, 1), run_of(9, 1)])) == "1 per step"
    assert str(syncs_by_layers([run_of(2, 1), run_of(4, 9), run_of(8, 7)])) == "no straight line"


def test_counts_of_unknown_depth_are_refused():
    with pytest.raises(ValueError, match="does not tell its plan"):
        syncs_by_layers([from_events([], Meta("measured"))])
    with pytest.raises(ValueError, match="give at least one"):
        syncs_by_layers([])


def planned(name: str, num_ranks: int, num_microbatches: int) -> Trace:
    lasting = schedule.Durations(forward=20e6, backward_input=20e6, backward_weight=20e6)
    return planned_trace(schedule.generate(name, num_ranks, num_microbatches), lasting)


def test_gpipe_holds_all_microbatches_and_1f1b_no_more_than_the_ranks_behind():
    assert microbatches_held(planned("gpipe", 4, 8)) == {0: 8, 1: 8, 2: 8, 3: 8}
    assert microbatches_held(planned("1f1b", 4, 8)) == {0: 4, 1: 3, 2: 2, 3: 1}


def test_a_split_backward_frees_with_its_last_half():
    rows = [
        dict(kind="stage_forward", microbatch=0, start_ns=0, end_ns=1),
        dict(kind="stage_backward_input", microbatch=0, start_ns=1, end_ns=2),
        dict(kind="stage_forward", microbatch=1, start_ns=2, end_ns=3),
        dict(kind="stage_backward_weight", microbatch=0, start_ns=3, end_ns=4),
        dict(kind="stage_forward", microbatch=2, start_ns=4, end_ns=5),
    ]
    rows = [dict(rank=0, step=0, stage=0) | row for row in rows]
    assert microbatches_held(from_events(rows, Meta("measured"))) == {0: 2}


def test_the_bubble_on_paper_follows_the_formula_and_the_pace():
    plan = {"pp": 4, "schedule": "1f1b", "microbatches": 8, "virtual": 1}
    assert ideal_bubble(from_events([], Meta("paced", plan=plan))) == pytest.approx(3 / 11)
    pace = {"forward_s": 1.0, "backward_input_s": 1.0, "backward_weight_s": 3.0, "optimizer_s": 0.0}
    slow = plan | {"schedule": "zb_h1", "pace": pace}
    longer = ideal_bubble(from_events([], Meta("paced", plan=slow)))
    assert longer != ideal_bubble(from_events([], Meta("paced", plan=slow | {"pace": None})))
    assert ideal_bubble(from_events([], Meta("measured", plan={"pp": 1, "schedule": None}))) is None
    assert ideal_bubble(from_events([], Meta("measured", plan=plan | {"schedule": "own"}))) is None
