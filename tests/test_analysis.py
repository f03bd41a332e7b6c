"""Every number's definition, on traces small enough to work out by hand; and what must hold on any trace."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import analysis
from labkit.analysis.intervals import Intervals
from labkit.trace import Meta, Trace, from_events


def event(rank: int, kind: str, start_ns: int, end_ns: int, **columns) -> dict:
    return {"rank": rank, "kind": kind, "start_ns": start_ns, "end_ns": end_ns, "step": 0, **columns}


def sync(rank: int, op: str, start_ns: int, end_ns: int, *, kind: str = "sync", group=(0, 1), seq=0, **columns) -> dict:
    columns = {"axis": "dp", "group": list(group), "seq": seq, **columns}
    return event(rank, kind, start_ns, end_ns, op=op, **columns)


def trace_of(*events: dict, source: str = "paced", ranks: int = 2, **meta) -> Trace:
    return from_events(events, Meta(source=source, num_ranks=ranks, **meta))


relaxed = settings(deadline=None, max_examples=50)
"""Machines are shared: no deadline."""


# ---- intervals

small = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    return Intervals.of([a for a, _ in pairs], [b for _, b in pairs])


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for a, b in pairs for t in range(a, b)}


def covered(found: Intervals) -> set[int]:
    return points(list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)))


@relaxed
@given(small, small)
def test_intervals_are_sets_of_moments(first, second):
    a, b = intervals(first), intervals(second)
    assert covered(a | b) == points(first) | points(second)
    assert covered(a & b) == points(first) & points(second)
    assert covered(a - b) == points(first) - points(second)
    assert a.total_ns == len(points(first))
    assert (a.starts[1:] > a.ends[:-1]).all()


# ---- caveats


def test_missing_ranks_are_said_and_not_averaged_over():
    trace = trace_of(event(1, "step", 0, 10), sync(1, "all_reduce", 2, 6, group=(0, 1, 2, 3), size_bytes=8), ranks=4)
    (note,) = analysis.notes(trace)
    assert note.startswith("3 of 4 ranks are missing from the trace (0, 2, 3)")
    assert analysis.sync_totals(trace) == {"dp": {"count": 1.0, "bytes": 8.0}}
    assert analysis.notes(trace_of(event(0, "step", 0, 1), event(1, "step", 0, 1))) == ()
    (note,) = analysis.notes(trace_of())
    assert note == "the trace holds no event, so nothing can be measured: record 'compute' and 'sync'"


# ---- breakdown


def step_of_ten() -> Trace:
    """Work from 0 to 4 and 8 to 10, a sync from 3 to 7."""
    return trace_of(
        event(0, "step", 0, 10),
        event(0, "stage_forward", 0, 4),
        event(0, "forward", 1, 4, layer="fc0"),
        event(0, "optimizer", 8, 10),
        sync(0, "all_reduce", 3, 7),
        ranks=1,
    )


def test_breakdown_by_hand():
    (row,) = analysis.breakdown(step_of_ten()).to_dicts()
    assert row == {
        **{"rank": 0, "window_ns": 10, "compute_ns": 5, "overlapped_sync_ns": 1},
        **{"exposed_sync_ns": 3, "idle_ns": 1},
    }
    assert analysis.overlap_percent(step_of_ten()) == {0: 25.0}


def test_a_wait_inside_work_is_no_work():
    trace = trace_of(
        event(0, "step", 0, 10),
        event(0, "stage_forward", 0, 10),
        sync(0, "all_reduce", 2, 6),
        sync(0, "all_reduce", 3, 7, kind="wait"),
    )
    (row,) = analysis.breakdown(trace).to_dicts()
    assert (row["compute_ns"], row["overlapped_sync_ns"], row["exposed_sync_ns"]) == (5, 1, 4)


def test_a_planned_step_lasts_as_long_as_its_longest_rank():
    trace = trace_of(event(0, "stage_forward", 0, 4), event(1, "stage_forward", 4, 8), source="planned")
    assert analysis.breakdown(trace)["idle_ns"].to_list() == [4, 4]


def test_temporal_breakdown_by_hand():
    trace = trace_of(
        event(0, "kernel", 0, 4000, layer="gemm"),
        event(0, "kernel", 4000, 6000, layer="Memcpy", op="memcpy"),
        sync(0, "all_reduce", 5000, 8000),
        event(0, "kernel", 9000, 10000, layer="gemm"),
        source="imported",
        ranks=1,
    )
    (row,) = analysis.temporal_breakdown(trace).to_dicts()
    assert row == {
        **{"rank": 0, "idle_ns": 1000, "compute_ns": 5000, "non_compute_ns": 4000},
        **{"exposed_sync_ns": 3000, "overlap_percent": 0.0},
    }


def test_imported_traces_are_counted_in_whole_us():
    trace = trace_of(event(0, "kernel", 0, 2900), event(0, "kernel", 3100, 5000), source="imported", ranks=1)
    (row,) = analysis.temporal_breakdown(trace).to_dicts()
    assert (row["compute_ns"], row["idle_ns"]) == (3000, 2000)  # 0-2 and 4-5 us
    assert analysis.breakdown(trace)["idle_ns"].to_list() == [200]


def test_the_step_in_which_recording_ended_does_not_count():
    steps = [event(0, "step", 0, 5000) | {"step": 7}, event(0, "step", 5000, 9000) | {"step": 8}]
    kernels = [event(0, "kernel", 1000, 6000) | {"step": 7}, event(0, "kernel", 7000, 9000) | {"step": 8}]
    unlaunched = event(0, "kernel", 500, 600) | {"step": None}
    (row,) = analysis.temporal_breakdown(trace_of(*steps, *kernels, unlaunched, source="imported")).to_dicts()
    assert (row["idle_ns"], row["compute_ns"]) == (0, 5000)


def test_no_sync_has_no_overlap():
    trace = trace_of(event(0, "step", 0, 10), event(0, "loss", 0, 4))
    assert analysis.overlap_percent(trace) == {0: None}
    assert analysis.temporal_breakdown(trace)["overlap_percent"].to_list() == [None]


def test_work_that_overlaps_is_busy_once():
    trace = trace_of(
        event(0, "stage_forward", 0, 6, microbatch=0, stage=0),
        event(0, "stage_forward", 4, 8, microbatch=1, stage=0),
        event(0, "stage_forward", 5, 7, microbatch=2, stage=0),
        event(1, "stage_forward", 2, 10, microbatch=0, stage=1),
        plan={"pp": 2},
    )
    assert analysis.bubble(trace).of_total == pytest.approx(1 - 16 / 20)


def test_bubble_by_hand():
    """Two ranks, a window of 10 each, 6 and 8 of work: 6 of 20 idle."""
    trace = trace_of(
        event(0, "stage_forward", 0, 6, microbatch=0, stage=0),
        event(1, "stage_forward", 2, 10, microbatch=0, stage=1),
        source="planned",
        plan={"pp": 2},
    )
    assert analysis.bubble(trace).of_total == pytest.approx(0.3)
    assert analysis.bubble(trace).of_ideal == pytest.approx(6 / 14)


# ---- matching


def late_all_reduce() -> Trace:
    """Issued at 2 by rank 0 and at 5 by rank 1, complete at 9."""
    return trace_of(
        *[event(rank, "step", 0, 10) for rank in (0, 1)],
        event(0, "stage_backward", 0, 2),
        event(1, "stage_backward", 0, 5),
        sync(0, "all_reduce", 2, 9, size_bytes=1000),
        sync(1, "all_reduce", 5, 9, size_bytes=1000),
        event(0, "optimizer", 9, 10),
        event(1, "optimizer", 9, 10),
    )


def test_collectives_by_hand():
    (row,) = analysis.collectives(late_all_reduce()).to_dicts()
    assert (row["first_rank"], row["straggler"], row["skew_ns"], row["transfer_ns"]) == (0, 1, 3, 4)
    assert (row["found"], row["end_ns"], row["size_bytes"]) == (2, 9, 1000)


def test_stragglers_by_hand():
    rows = analysis.stragglers(late_all_reduce()).to_dicts()
    assert [(row["rank"], row["times_last"], row["skew_ns"]) for row in rows] == [(0, 0, 0), (1, 1, 3)]


def test_two_groups_of_the_same_ranks_do_not_mix():
    again = [sync(rank, "all_reduce", 20 + rank, 30) for rank in (0, 1)]
    found = analysis.collectives(trace_of(*late_all_reduce().of("sync").drop_nulls("op").to_dicts(), *again))
    assert found["found"].to_list() == [2, 2]
    assert found["skew_ns"].to_list() == [3, 1]


def test_messages_by_hand():
    """Sent at 7, asked for at 2, there at 8."""
    trace = trace_of(
        sync(0, "send", 7, 7, peer=1, microbatch=3, size_bytes=8), sync(1, "recv", 2, 8, peer=0, microbatch=3)
    )
    (row,) = analysis.messages(trace).to_dicts()
    assert (row["sender"], row["receiver"], row["skew_ns"], row["late_rank"], row["transfer_ns"]) == (0, 1, -5, 0, 1)
    assert row["microbatch"] == 3


def test_unmatched_syncs_name_the_lonely():
    trace = trace_of(sync(0, "all_reduce", 0, 1), sync(0, "send", 2, 3, peer=1), sync(1, "recv", 2, 3, peer=0))
    assert analysis.unmatched_syncs(trace)["op"].to_list() == ["all_reduce"]
    assert analysis.collectives(trace)["found"].to_list() == [1]


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [("all_reduce", 4, 1.5), ("all_gather", 4, 0.75), ("reduce_scatter", 2, 0.5), ("broadcast", 4, 1.0)],
)
def test_bandwidth_by_hand(op, ranks, factor):
    """1000 bytes in 1 us: algorithm 1 GB/s; bus by nccl-tests' factors."""
    calls = [sync(rank, op, rank, 1000 + ranks - 1, group=range(ranks), size_bytes=1000) for rank in range(ranks)]
    (row,) = analysis.bandwidth(trace_of(*calls, ranks=ranks)).to_dicts()
    assert row["transfer_ns"] == 1000
    assert row["algorithm_bytes_s"] == pytest.approx(1e9)
    assert row["bus_bytes_s"] == pytest.approx(factor * 1e9)


def test_no_time_or_no_size_has_no_bandwidth():
    calls = [sync(rank, "all_reduce", 5, 5, size_bytes=8) for rank in (0, 1)]
    calls += [sync(rank, "all_reduce", 6, 9, seq=1) for rank in (0, 1)]
    assert analysis.bandwidth(trace_of(*calls))["bus_bytes_s"].to_list() == [None, None]


# ---- memory


def test_memory_lanes_by_hand():
    held = [event(0, "forward", t - 1, t, param_bytes=4, activation_bytes=n) for t, n in ((1, 0), (2, 8), (3, 8))]
    lanes = analysis.memory_lanes(trace_of(*held, event(0, "sync", 3, 9), ranks=1))
    assert lanes.select("t_ns", "param_bytes", "activation_bytes").rows() == [(1, 4, 0), (2, 4, 8)]
    assert analysis.memory_peaks(trace_of(*held, ranks=1)) == {0: 12}


# ---- gaps


def test_gaps_by_hand():
    table = analysis.gaps(late_all_reduce()).filter(pl.col("rank") == 0)
    found = [(row["start_ns"], row["end_ns"], row["cause"], row["by_rank"]) for row in table.to_dicts()]
    assert found == [(2, 5, "straggler", 1), (5, 9, "bandwidth-bound sync", 1)]


# ---- any trace

RANKS = 3


@st.composite
def random_traces(draw) -> Trace:
    """Steps, work, waits and syncs at random, matched or not, in every order a recorder could not even produce."""
    times = st.tuples(st.integers(0, 60), st.integers(0, 25))
    kinds = st.sampled_from(["stage_forward", "stage_backward", "forward", "backward", "optimizer", "load"])
    events = []
    for _ in range(draw(st.integers(0, 14))):
        start, length = draw(times)
        stage, microbatch = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        rank, step = draw(st.integers(0, RANKS - 1)), draw(st.integers(0, 1))
        events.append(event(rank, draw(kinds), start, start + length, stage=stage, microbatch=microbatch, step=step))
    for _ in range(draw(st.integers(0, 10))):
        start, length = draw(times)
        rank, peer = draw(st.integers(0, RANKS - 1)), draw(st.integers(0, RANKS - 1))
        op = draw(st.sampled_from(["all_reduce", "broadcast", "send", "recv"]))
        kind, axis = draw(st.sampled_from(["sync", "sync", "wait"])), draw(st.sampled_from(["dp", "pp", None]))
        group = draw(st.sampled_from([(0, 1, 2), (0, 1), None, (rank,)]))
        is_message, seq = op in ("send", "recv"), draw(st.integers(0, 2))
        row = event(rank, kind, start, start + length, op=op, axis=axis, seq=seq, peer=peer if is_message else None)
        events.append(row | {"group": list(group) if group else None})
    if draw(st.booleans()):
        events += [
            event(rank, "step", step * 40, step * 40 + 38, step=step) for rank in range(RANKS) for step in (0, 1)
        ]
    plan = draw(st.sampled_from([None, {"pp": 3}, {"dp": 3}]))
    source = draw(st.sampled_from(["measured", "paced", "planned", "replayed"]))
    return from_events(events, Meta(source=source, num_ranks=RANKS, num_cores=2, plan=plan))


@relaxed
@given(random_traces())
def test_breakdown_adds_up_to_the_window(trace):
    for row in analysis.breakdown(trace).to_dicts():
        parts = row["compute_ns"] + row["overlapped_sync_ns"] + row["exposed_sync_ns"] + row["idle_ns"]
        assert parts == row["window_ns"]
        assert min(row.values()) >= 0


@relaxed
@given(random_traces())
def test_every_question_has_an_answer(trace):
    for ask in (analysis.collectives, analysis.messages, analysis.stragglers, analysis.bandwidth):
        assert isinstance(ask(trace), pl.DataFrame)
    assert analysis.memory_lanes(trace).height <= trace.events.height
    assert analysis.temporal_breakdown(trace).height <= RANKS


def test_an_empty_trace_is_no_error():
    empty = trace_of()
    assert analysis.breakdown(empty).is_empty()
    assert analysis.gaps(empty).is_empty()
    assert analysis.critical_path(empty).is_empty()
    assert analysis.memory_lanes(empty).is_empty()
    assert analysis.bandwidth(empty).is_empty()
    assert analysis.stragglers(empty).is_empty()
