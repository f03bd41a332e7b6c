"""Replay: graphs worked out by hand, schedules against the simulation, traces against themselves, and bad input."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import labkit
from labkit import lab, schedule
from labkit.cli import app
from labkit.costs import Model, Training
from labkit.own_runs.live import kept_pace
from labkit.plan import Plan
from labkit.predict import predict_trace
from labkit.replay import (
    COLLECTIVE,
    RECV,
    SEND,
    Changes,
    Graph,
    ReplayError,
    Syncs,
    exposed_sync_ns,
    planned_trace,
    play,
    replay,
    same_plan,
    step_ns,
)
from labkit.replay.columns import find, next_of, occurrence, order_by
from labkit.replay.replayed import on_axes_of
from labkit.replay.what_if import what_if
from labkit.schedule import SCHEDULES, Durations, Schedule, ScheduleError, generate, problem, simulate
from labkit.trace import Meta, from_events

REPO = Path(labkit.__file__).parents[1]
TABLE = REPO.parent / "shared" / "facts" / "zerobubble_tables_4_5_9_two_models.csv"

# ---- the engine, worked out by hand


def message(transfer_ns: int = 2, latency_ns: int = 3) -> Syncs:
    """Sync 0 is the send, sync 1 its receive."""
    return Syncs([SEND, RECV], [1, 1], [1, 0], [0, 0], [transfer_ns, 0], [latency_ns, 0])


def graph(*ranks: list[tuple[int, int]], syncs: Syncs, **options) -> Graph:
    """Ranks as lists of (code, own work)."""
    nodes = [node for rank in ranks for node in rank]
    first = [sum(map(len, ranks[:i])) for i in range(len(ranks) + 1)]
    code, own = zip(*nodes)
    return Graph([0] * len(ranks), first, code, own, [0] * len(nodes), syncs, **options)


def test_a_message_by_hand():
    """Sent at 5, on the wire until 7, there at 10. The receiver asks at 1 and works 4 after it."""
    times = play(graph([(0, 5)], [(1, 1), (~1, 0), (~1, 4)], syncs=message()))
    assert times.node_ns == [5, 1, 10, 14]
    assert times.done_ns == [7, 10]


def test_a_message_that_is_there_blocks_nobody():
    times = play(graph([(0, 5), (~0, 0)], [(1, 20), (~1, 1)], syncs=message()))
    assert times.node_ns == [5, 7, 20, 21]


def test_messages_share_their_lane_one_after_the_other():
    """Both sent at 0; the first leaves at 2, the second at 4; latency 3 comes on top of each."""
    syncs = Syncs([SEND, RECV, SEND, RECV], [1] * 4, [1, 0, 3, 2], [0] * 4, [2, 0, 2, 0], [3, 0, 3, 0])
    times = play(graph([(0, 0), (2, 0)], [(1, 0), (3, 0), (~3, 0)], syncs=syncs))
    assert times.done_ns == [2, 5, 4, 7]
    assert times.node_ns[-1] == 7


def test_a_rendezvous_holds_the_sender_until_the_receiver_asks():
    times = play(graph([(0, 5), (~0, 0)], [(1, 50), (~1, 0)], syncs=message(), rendezvous=True))
    assert times.node_ns == [5, 50, 50, 50]
    times = play(graph([(0, 5), (~0, 0)], [(1, 1), (~1, 0)], syncs=message(), rendezvous=True))
    assert times.node_ns == [5, 7, 1, 10]


def test_a_collective_waits_for_its_straggler():
    """Arrivals 3, 9 and 4; it starts at 9, takes 2 + 1, and all go on at 12."""
    syncs = Syncs([COLLECTIVE], [3], [-1], [0], [2], [1])
    times = play(graph(*[[(0, arrival), (~0, 0)] for arrival in (3, 9, 4)], syncs=syncs))
    assert times.node_ns == [3, 12, 9, 12, 4, 12]


def test_buckets_overlap_work_and_queue_on_their_lane():
    """Buckets at 10 and 20 of 15 each, over 2 ranks: done at 25 and 40; the ranks work on until 30, then wait."""
    syncs = Syncs([COLLECTIVE] * 2, [2, 2], [-1, -1], [0, 0], [15, 15], [0, 0])
    rank = [(0, 10), (1, 10), (~0, 10), (~1, 0)]
    assert play(graph(rank, rank, syncs=syncs)).node_ns[:4] == [10, 20, 30, 40]


def test_a_deadlock_says_who_waits_for_what():
    with pytest.raises(ReplayError, match="2 of 2 ranks wait for ever: rank 0 at its node 0 waits for a receive"):
        syncs = Syncs([RECV, SEND, RECV, SEND], [1] * 4, [1, 0, 3, 2], [0] * 4, [0] * 4, [0] * 4)
        play(graph([(~0, 0), (3, 0)], [(~2, 0), (1, 0)], syncs=syncs))
    with pytest.raises(ReplayError, match="1 of 2 ranks"):
        play(
            graph(
                [(0, 1), (~0, 0)], [(1, 1)], syncs=Syncs([COLLECTIVE] * 2, [2, 1], [-1] * 2, [0] * 2, [0] * 2, [0] * 2)
            )
        )


# ---- planned: the engine against the schedules' own simulation

_KINDS = {
    "stage_forward": "F",
    "stage_backward": "B",
    "stage_backward_input": "I",
    "stage_backward_weight": "W",
}
_SHAPES = [
    (name, p, m, v)
    for name in SCHEDULES
    for p in (1, 2, 3, 4)
    for m in (1, 4, 6, 8)
    for v in (None, 3)
    if problem(name, p, m, v) is None
]


@pytest.mark.parametrize(("name", "p", "m", "v"), _SHAPES)
def test_every_schedule_takes_as_long_as_its_simulation(name, p, m, v):
    order = generate(name, p, m, v)
    per_stage = [
        Durations(forward=100 + 7 * s, backward_input=90 + 5 * s, backward_weight=40 + s)
        for s in range(order.num_stages)
    ]
    trace = planned_trace(order, per_stage, hop_ns=11)
    simulated = {
        (s.rank, s.action.kind, s.action.stage, s.action.microbatch, s.start, s.end)
        for s in simulate(order, per_stage, hop=11)
    }
    rows = trace.of(*_KINDS).iter_rows(named=True)
    drawn = {
        (row["rank"], _KINDS[row["kind"]], row["stage"], row["microbatch"], row["start_ns"], row["end_ns"])
        for row in rows
    }
    assert drawn == simulated
    assert trace.meta.source == "planned"
    assert trace.meta.mesh.pp == p
    assert labkit.analysis.unmatched_syncs(trace).is_empty()


@pytest.mark.parametrize(("to", "virtual"), [("gpipe", 1), ("1f1b", 1), ("interleaved_1f1b", 2), ("looped_bfs", 2)])
def test_a_planned_trace_takes_another_schedule(to, virtual):
    """As if that one had been drawn with the same durations: of a rank's layers, shared by its stages."""
    was = planned_trace(generate("zb_h1", 4, 8), Durations(forward=90, backward_input=80, backward_weight=40), hop_ns=7)
    part = Durations(forward=90 / virtual, backward_input=80 / virtual, backward_weight=40 / virtual)
    expected = planned_trace(generate(to, 4, 8, virtual), part, hop_ns=7)
    found = what_if(was, Changes(), {"schedule": to})
    assert found.after.events.equals(expected.events)
    assert found.after.meta.source == "planned"
    assert found.to_dict()["changes"][0] == f"schedule zb_h1 -> {to}"


def test_a_planned_trace_takes_more_microbatches_then_other_conditions():
    was = planned_trace(generate("1f1b", 2, 4), Durations(forward=10, backward_input=10, backward_weight=10))
    found = what_if(was, Changes(compute=2.0), {"microbatches": 6})
    assert step_ns(found.after) == 2 * (6 + 1) * 30
    halves = what_if(was, Changes(), {"schedule": "zb_h1"}).after
    assert any("taken as equally long" in note for note in halves.meta.notes)


def test_what_a_drawn_schedule_cannot_become_is_said():
    was = planned_trace(generate("1f1b", 2, 4), Durations(forward=10))
    for change in ({"pp": 4}, {"dp": 2}):
        with pytest.raises(ReplayError, match=f"{next(iter(change))} cannot change"):
            what_if(was, Changes(), change)
    with pytest.raises(ScheduleError, match="Did you mean 'gpipe'"):
        what_if(was, Changes(), {"schedule": "gpip"})
    training = Training(model=Model(layers=4, hidden=64, heads=4, sequence=64), pp=2, global_batch=4)
    with pytest.raises(ReplayError, match="predict it again with --schedule gpipe"):
        what_if(predict_trace(training, "a100"), Changes(), {"schedule": "gpipe"})


def test_an_imported_trace_says_why_it_cannot_be_replayed():
    imported = from_events([event(0, "step", 0, 10)], Meta(source="imported"))
    with pytest.raises(ReplayError, match="profiler files do not say which kernel waits for which sync"):
        replay(imported)


def test_infinite_bandwidth_leaves_the_least_that_a_captured_operation_took():
    """Two unlinked sums of 6 and 4: without bandwidth both take 4, which stands for the latency."""
    rows = []
    for rank in (0, 1):
        rows += [event(rank, "step", 0, 20), event(rank, "optimizer", 16, 20)]
        for seq, (start, end) in enumerate([(0, 6), (10, 14)]):
            about = {"op": "all_reduce", "axis": "dp", "group": [0, 1], "seq": seq}
            rows += [event(rank, "sync", start, end, size_bytes=8, **about), event(rank, "wait", start, end, **about)]
    trace = from_events(rows, Meta(source="measured", plan={"dp": 2}, num_ranks=2))
    assert step_ns(replay(trace)) == 20
    assert step_ns(replay(trace, Changes(infinite_bandwidth=True))) == 18


def test_a_users_own_schedule_is_checked_and_drawn():
    own = Schedule.from_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", name="mine")
    trace = planned_trace(own, Durations(forward=10, backward_input=10, backward_weight=10))
    assert trace.of("stage_backward")["end_ns"].max() == 90
    assert trace.meta.plan["schedule"] == "mine"
    with pytest.raises(ScheduleError, match="wait for ever"):
        planned_trace(Schedule.from_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0"), Durations())
    with pytest.raises(ReplayError, match="1 durations for 2 stages"):
        planned_trace(own, [Durations()])
    with pytest.raises(ReplayError, match="no duration"):
        planned_trace(own, Durations(), hop_ns=float("nan"))


def test_a_plan_is_drawn_as_one_pipeline():
    trace = planned_trace(Plan(pp=2, dp=2, microbatches=4, layers=4), Durations(forward=1e6), hop_ns=0)
    assert (trace.meta.num_ranks, trace.meta.mesh.dp) == (2, 1)
    with pytest.raises(ReplayError, match="pp 1"):
        planned_trace(Plan(dp=2), Durations())


# ---- columns


_PLACES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=25)


@given(asking=_PLACES, others=_PLACES)
def test_columns_are_ordered_and_found_as_plain_loops_do(asking, others):
    keys, times = np.array(asking, np.int64).reshape(-1, 2).T
    of_keys, of_times = np.array(others, np.int64).reshape(-1, 2).T
    assert order_by(keys, times).tolist() == sorted(range(len(asking)), key=asking.__getitem__)
    huge = times << 58  # too wide to be packed into one number
    assert order_by(huge, keys).tolist() == np.lexsort((keys, huge)).tolist()
    known = [key for key, _ in others]
    assert find(keys, of_keys).tolist() == [known.index(key) if key in known else -1 for key, _ in asking]
    expected = []
    for key, time_ns in asking:
        later = [(at, place) for place, (other, at) in enumerate(others) if other == key and at >= time_ns]
        expected.append(min(later, default=(0, -1))[1])
    assert next_of(keys, times, of_keys, of_times).tolist() == expected
    assert occurrence(of_keys).tolist() == [known[:place].count(key) for place, key in enumerate(known)]


# ---- captured: traces written by hand


def event(rank: int, kind: str, start_ns: int, end_ns: int, **columns) -> dict:
    return {"rank": rank, "kind": kind, "step": 0, "start_ns": start_ns, "end_ns": end_ns, **columns}


def sync(rank: int, op: str, start_ns: int, end_ns: int, *, group=(0, 1), kind="sync", **columns) -> dict:
    axis = "pp" if op in ("send", "recv") else "dp"
    columns = {"axis": axis, "group": list(group), "seq": 0, "stage": rank, "microbatch": 0, **columns}
    size = {"size_bytes": columns.pop("size_bytes", 1000)} if kind == "sync" else {}
    return event(rank, kind, start_ns, end_ns, op=op, **columns, **size)


PACED = {"pp": 2, "dp": 1, "tp": 1, "schedule": "1f1b", "pace": {"forward_s": 1e-8}, "layers": 2}


def two_stages(plan: dict = PACED, source: str = "paced"):
    """Rank 0 works 10 and sends; rank 1 asked at 0, gets it at 10, works 20, and updates for 5."""
    rows = [
        event(0, "step", 0, 15),
        event(0, "stage_forward", 0, 10, stage=0, microbatch=0, cpu_ns=4),
        sync(0, "send", 10, 10, peer=1),
        event(0, "optimizer", 10, 15, cpu_ns=5),
        event(1, "step", 0, 35),
        sync(1, "recv", 0, 10, peer=0),
        sync(1, "recv", 0, 10, peer=0, kind="wait"),
        event(1, "stage_forward", 10, 30, stage=1, microbatch=0, cpu_ns=8),
        event(1, "optimizer", 30, 35, cpu_ns=5),
    ]
    return from_events(rows, Meta(source, plan, num_ranks=2))


def span(trace, rank: int, kind: str) -> tuple[int, int]:
    row = trace.events.filter((pl.col("rank") == rank) & (pl.col("kind") == kind)).row(0, named=True)
    return row["start_ns"], row["end_ns"]


def test_as_it_was():
    trace = two_stages()
    again = replay(trace)
    assert again.events.drop("late_ns").equals(trace.events.drop("late_ns"))
    assert again.meta.source == "replayed"
    assert again.meta.notes == ("replayed: as it was",)
    assert step_ns(again) == 35


@pytest.mark.parametrize(
    ("changes", "forward_of_1", "step"),
    [
        (Changes(slow_ranks={0: 3}), (30, 50), 55),  # the message comes 20 later
        (Changes(slow_ranks={1: 2}), (10, 50), 60),
        (Changes(compute=0.5), (5, 15), 17),  # the optimizer's 2.5 ns are rounded to 2
        (Changes(link="latency=1us,bandwidth=1GB/s"), (2010, 2030), 2035),  # 1000 bytes: 1000 ns, then 1000 ns more
        (Changes(link={"pp": "latency=0s,bandwidth=100GB/s"}), (20, 40), 45),
        (Changes(no_sync=True), (10, 30), 35),
        (Changes(device_time="cpu"), (4, 12), 17),
        (Changes(device_time="cpu", slow_ranks={0: 5}), (20, 28), 45),
    ],
)
def test_other_conditions_by_hand(changes, forward_of_1, step):
    again = replay(two_stages(), changes)
    assert span(again, 1, "stage_forward") == forward_of_1
    assert step_ns(again) == step
    assert again.meta.notes[0] == f"replayed: {', '.join(on_axes_of(two_stages(), changes).words())}"


def test_a_link_of_an_axis_without_syncs_is_refused_and_never_listed():
    with pytest.raises(ReplayError, match="dp link: no sync of the trace goes over it; the trace has syncs of pp"):
        replay(two_stages(), Changes(link={"dp": "pcie4"}))
    found = what_if(two_stages(), Changes(link="pcie4"))
    assert [words.partition(":")[0] for words in found.changes] == ["pp link"]
    assert set(found.after.meta.plan["link"]) == {"pp", "dp", "tp"}


def test_infinite_bandwidth_leaves_the_latency():
    on_link = replay(two_stages(), Changes(link="latency=1us,bandwidth=1GB/s"))
    assert span(replay(on_link, Changes(infinite_bandwidth=True)), 1, "stage_forward") == (1010, 1030)


def test_a_wait_that_nobody_saw_comes_back():
    """The message was there before rank 1 needed it, so no wait was recorded; with rank 0 slower there is one."""
    rows = [
        event(0, "step", 0, 10),
        event(0, "stage_forward", 0, 10, stage=0, microbatch=0),
        sync(0, "send", 10, 10, peer=1),
        event(1, "step", 0, 50),
        event(1, "load", 0, 20),
        sync(1, "recv", 20, 20, peer=0),
        event(1, "stage_forward", 20, 50, stage=1, microbatch=0),
    ]
    trace = from_events(rows, Meta("paced", PACED, num_ranks=2))
    assert replay(trace).of("wait").is_empty()
    slow = replay(trace, Changes(slow_ranks={0: 4}))
    assert span(slow, 1, "wait") == (20, 40)
    assert span(slow, 1, "stage_forward") == (40, 70)
    assert exposed_sync_ns(slow) == {"pp": 10.0}


def replicas(late: int = 0):
    """Two replicas: a bucket issued at 10 (rank 1: later by `late`) inside backward, over at 25; done 30 later."""
    rows = []
    for rank in (0, 1):
        own = late * rank
        done = 40 + late
        rows += [
            event(rank, "step", 0, done + 5),
            event(rank, "stage_backward", 0, 25 + own, stage=0, microbatch=0),
            sync(rank, "all_reduce", 10 + own, done, stage=0),
            sync(rank, "all_reduce", 25 + own, done, stage=0, kind="wait"),
            event(rank, "optimizer", done, done + 5),
        ]
    plan = {"pp": 1, "dp": 2, "tp": 1, "pace": {"forward_s": 1e-8}}
    return from_events(rows, Meta("paced", plan, num_ranks=2))


def test_a_bucket_overlaps_backward_and_the_optimizer_waits_for_it():
    trace = replicas()
    assert replay(trace).events.drop("late_ns").equals(trace.events.drop("late_ns"))
    assert span(replay(trace, Changes(no_sync=True)), 0, "optimizer") == (25, 30)
    assert replay(trace, Changes(no_sync=True)).of("wait").is_empty()
    slower = replay(trace, Changes(slow_ranks={1: 2}))  # rank 1 issues at 20: done at 50, its backward ends at 50
    assert span(slower, 0, "optimizer") == (50, 55)
    assert span(slower, 1, "optimizer") == (50, 60)
    assert span(slower, 0, "wait") == (25, 50)


def test_a_straggler_is_the_arrival_that_counts():
    assert span(replay(replicas(late=7), Changes(slow_ranks={0: 1.4})), 0, "optimizer") == (47, 54)


def test_a_link_is_counted_in_the_plan_and_replays_again():
    once = replay(replicas(), Changes(link={"dp": "latency=1us,bandwidth=1GB/s"}))
    assert once.meta.plan["link"]["dp"]["latency_s"] == pytest.approx(1e-6)
    assert span(once, 0, "optimizer")[0] == 10 + 1000 + 1000  # ring of two: all 1000 bytes once
    assert replay(once).events.equals(once.events)


# ---- idempotent


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from([shape for shape in _SHAPES if shape[1] > 1]),
    durations=st.tuples(*[st.integers(1, 1000)] * 3),
    hop=st.integers(0, 500),
    slow=st.floats(0.25, 4),
)
def test_replaying_as_it_was_changes_nothing(shape, durations, hop, slow):
    order = generate(*shape)
    trace = planned_trace(
        order, Durations(**dict(zip(("forward", "backward_input", "backward_weight"), durations))), hop_ns=hop
    )
    once = replay(trace)
    stages = list(_KINDS)
    assert once.of(*stages).equals(trace.of(*stages))
    assert replay(once).events.equals(once.events)
    changed = replay(trace, Changes(slow_ranks={0: slow}))
    assert replay(changed).of(*stages).equals(changed.of(*stages))
    assert step_ns(changed) >= step_ns(trace) * min(1.0, slow) - order.num_microbatches * 8


# ---- bad input


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"compute": 0}, "compute: factor 0"),
        ({"compute": float("nan")}, "compute: factor nan"),
        ({"slow_ranks": {1: -2.0}}, "slow rank 1: factor -2.0"),
        ({"slow_ranks": {-1: 2.0}}, "give a rank from 0"),
        ({"device_time": "gpu"}, "give 'wall'"),
        ({"link": "nvlink9"}, "did you mean 'nvlink"),
        ({"link": {"ep": "pcie4"}}, "the axes are pp, dp, tp"),
        ({"no_sync": True, "infinite_bandwidth": True}, "give one of them"),
    ],
)
def test_changes_that_mean_nothing_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Changes(**fields)


def test_a_trace_that_lacks_a_rank_is_refused():
    trace = two_stages()
    with pytest.raises(ReplayError, match=r"no finished step of rank 1 \(of 2 ranks\)"):
        replay(type(trace)(trace.events.filter(pl.col("rank") == 0), trace.meta))
    with pytest.raises(ReplayError, match="slow rank 7: the trace has ranks 0 to 1"):
        replay(trace, Changes(slow_ranks={7: 2}))
    with pytest.raises(ReplayError, match="no CPU time"):
        replay(
            type(trace)(trace.events.with_columns(cpu_ns=None).cast(trace.events.schema), trace.meta),
            Changes(device_time="cpu"),
        )


def test_a_missing_counterpart_is_repaired_and_said():
    trace = two_stages()
    alone = type(trace)(trace.events.filter(pl.col("op").fill_null("") != "send"), trace.meta)
    again = replay(alone)
    assert span(again, 1, "stage_forward") == (10, 30)
    assert any("1 syncs lack a counterpart" in note for note in again.meta.notes)


def test_a_step_that_not_all_ranks_finished_is_left_out_and_said():
    trace = two_stages()
    rows = [*trace.events.to_dicts(), {"rank": 0, "kind": "step", "step": 1, "start_ns": 40, "end_ns": 50}]
    again = replay(from_events(rows, trace.meta))
    assert again.events["step"].max() == 0
    assert "1 steps that not all ranks finished are left out" in again.meta.notes


# ---- commands

runner = CliRunner()


def table() -> list[dict[str, str]]:
    return list(csv.DictReader(TABLE.open())) if TABLE.exists() else []


@pytest.mark.skipif(not TABLE.exists(), reason=f"the published table is not at {TABLE}")
@pytest.mark.parametrize(
    ("name", "column", "tolerance"),
    [
        ("1f1b", "br_1F1B", 0),
        ("zb_h1", "br_ZB_H1", 0),
        ("zb_h2", "br_ZB_H2", 0),
        ("interleaved_1f1b", "br_1F1B_I", 0.004),
    ],
)
def test_published_bubble_rates_come_out_of_the_command(name, column, tolerance):
    for row in table():
        durations = ",".join(f"{letter}={row[f'T_{letter}_ms']}ms" for letter in "FBW")
        virtual = ["--virtual", "3"] if tolerance else []
        shape = ["--stages", row["p"], "--microbatches", row["m"], *virtual]
        result = runner.invoke(
            app, ["schedule", name, *shape, "--durations", f"{durations},comm={row['T_comm_ms']}ms", "--json"]
        )
        assert result.exit_code == 0, result.output
        rate = json.loads(result.output)["bubble_fraction_longest_stage"]
        assert abs(rate - float(row[column])) <= tolerance if tolerance else f"{rate:.4f}" == row[column]


def test_schedule_command_prints_a_grid_and_both_bubbles():
    result = runner.invoke(app, ["schedule", "1f1b", "--stages", "2", "--microbatches", "3", "--json"])
    found = json.loads(result.output)
    assert found["grid"] == [
        ["0F0", "0F1", "", "0B0", "0F2", "0B1", "", "0B2"],
        ["", "1F0", "1B0", "1F1", "1B1", "1F2", "1B2", ""],
    ]
    assert found["makespan_ns"] == 12_000_000
    assert found["bubble_fraction"] == pytest.approx(1 / 4)
    assert found["bubble_of_ideal"] == pytest.approx(1 / 3)
    text = runner.invoke(app, ["schedule", "1f1b", "--stages", "2", "--microbatches", "3"]).output
    assert "rank 1   .  1F0 1B0 1F1 1B1 1F2 1B2  ." in text


def test_schedule_command_takes_a_file_and_shows_the_guilty_row(tmp_path):
    good, bad = tmp_path / "mine.csv", tmp_path / "bad.csv"
    good.write_text("0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    bad.write_text("0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1F1\n")
    out = tmp_path / "mine.parquet"
    result = runner.invoke(app, ["schedule", str(good), "--json", "--out", str(out)])
    assert json.loads(result.output)["name"] == "mine"
    assert labkit.load(out).meta.source == "planned"
    result = runner.invoke(app, ["schedule", str(bad)])
    assert result.exit_code == 2
    assert "<-- step 3: 1F1" in result.stderr
    assert "for 2" in runner.invoke(app, ["schedule", str(good), "--stages", "4"]).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1f1b", "--durations", "F=0ms,B=1ms"], "duration F=0ms: give a time above 0"),
        (["1f1b", "--durations", "F=-1ms,B=1ms"], "give a time above 0"),
        (["1f1b", "--durations", "F=nan,B=1ms"], "not a finite number"),
        (["1f1b", "--durations", "F=1ms"], "B is missing"),
        (["1f1b", "--durations", "F=1ms,B=1ms,X=1ms"], "X is unknown"),
        (["1f1b", "--durations", "F=1ms,B=1ms,F=2ms"], "F is given twice"),
        (["1f1b", "--durations", "F=1,B=1ms"], "duration F=1: give its unit, e.g. F=1ms"),
        (["zb_h1", "--durations", "F=1ms,B=1ms"], "W is missing"),
        (["1f1b", "--stages", "0"], "0 ranks"),
        (["1f1b", "--stages", "4", "--microbatches", "2"], "at least as many microbatches as ranks"),
        (["zb_h3"], "Did you mean 'zb_h"),
        (["none.csv"], "cannot read the schedule"),
    ],
)
def test_schedule_command_refuses_with_the_way_out(arguments, message):
    result = runner.invoke(app, ["schedule", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_replay_command_compares_before_and_after(tmp_path):
    path, out = tmp_path / "run.parquet", tmp_path / "slow.parquet"
    two_stages().save(path)
    result = runner.invoke(app, ["replay", str(path), "--slow-rank", "0=3", "--json", "--out", str(out)])
    found = json.loads(result.output)
    assert (found["kind"], found["step_ns_before"], found["step_ns"]) == ("replayed", 35, 55)
    assert found["changes"] == ["rank 0 takes 3 times as long"]
    assert found["after"]["exposed_sync_ns"] == {"pp": 15.0}
    assert labkit.load(out).meta.source == "replayed"
    text = runner.invoke(app, ["replay", str(path), "--no-sync"]).output
    assert "changed: syncs cost nothing" in text
    assert "step 0.00 ms -> 0.00 ms" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slow-rank", "two=2"], "give rank=factor"),
        (["--slow-rank", "5=2"], "the trace has ranks 0 to 1"),
        (["--compute", "0"], "compute: factor 0"),
        (["--link", "ep:pcie4"], "the axes are pp, dp, tp"),
        (["--device-time", "gpu"], "give 'wall'"),
    ],
)
def test_replay_command_refuses_with_the_way_out(tmp_path, arguments, message):
    path = tmp_path / "run.parquet"
    two_stages().save(path)
    result = runner.invoke(app, ["replay", str(path), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


# ---- real runs


@pytest.fixture(scope="module")
def real():
    yield lab.run
    lab.close()


@pytest.mark.engine
@pytest.mark.quiet
def test_an_unpaced_run_replays_to_its_own_step_time_and_by_cpu_time_to_its_simulation(real):
    """By CPU time and with free syncs, a pipeline takes what the schedule's own simulation says of those durations."""
    trace = real(Plan(pp=2, layers=4, microbatches=4, global_batch=256, width=256, steps=4))
    assert step_ns(replay(trace)) == pytest.approx(step_ns(trace), rel=0.03)
    device = replay(trace, Changes(device_time="cpu", no_sync=True))
    window, expected = [], []
    for step in range(1, 4):
        work = trace.of(*_KINDS).filter(pl.col("step") == step)
        mean = work.group_by("stage", "kind").agg(pl.col("cpu_ns").mean())
        cost = {(stage, _KINDS[str(kind)]): cpu for stage, kind, cpu in mean.iter_rows()}
        durations = [Durations(forward=cost[s, "F"], backward_input=cost[s, "B"], backward_weight=0) for s in range(2)]
        expected.append(max(slot.end for slot in simulate(generate("1f1b", 2, 4), durations)))
        again = device.of(*_KINDS).filter(pl.col("step") == step)
        window.append(again["end_ns"].max() - again["start_ns"].min())
    assert sum(window) / sum(expected) == pytest.approx(1, abs=0.15)  # losses come on top, and costs are not all alike


@pytest.mark.engine
@pytest.mark.quiet
def test_a_replayed_link_is_what_a_run_on_that_link_takes():
    plan = Plan(pp=2, dp=2, layers=4, microbatches=4, steps=6, pace="forward=20ms,backward=40ms", link="pcie4")
    slow = {"pp": "latency=15ms,bandwidth=1MB/s", "dp": "latency=5ms,bandwidth=500kB/s"}
    predicted = step_ns(replay(kept_pace(plan), Changes(link=slow)))
    assert predicted == pytest.approx(step_ns(kept_pace(same_plan(plan, link=slow))), rel=0.05)


@pytest.mark.parametrize("task", ["digits", "digits_cnn", "chars"])
@pytest.mark.parametrize("layers", [1, 3, 4])
def test_sizes_of_the_tasks_are_those_torch_builds(task, layers):
    from labkit.engine.tasks import task_of
    from labkit.replay.shapes import layer_shapes

    torch = pytest.importorskip("torch")
    plan = Plan(task=task, layers=layers)
    built, shapes = task_of(plan), layer_shapes(plan)
    assert built.names == tuple(shape.name for shape in shapes)
    x = torch.zeros((2, plan.context), dtype=torch.long) if task == "chars" else torch.zeros(2, 64)
    for position, shape in enumerate(shapes):
        layer = built.build(position)
        x = layer(x)
        assert sum(parameter.numel() for parameter in layer.parameters()) == shape.num_params
        assert x.numel() // 2 == shape.output_elements


@pytest.mark.bench
def test_a_million_events_a_second():
    from labkit.replay.captured import captured
    from labkit.replay.program import graph_of

    order = generate("1f1b", 8, 4096)
    trace = planned_trace(order, Durations(forward=1e6, backward_input=1e6, backward_weight=1e6), hop_ns=1e5)
    nodes = graph_of(captured(trace, Changes()).program)
    times = {"engine": lambda: play(nodes), "whole replay": lambda: replay(trace)}
    for name, run in times.items():
        took = min(_seconds(run) for _ in range(3))
        print(f"{name}: {trace.events.height / took / 1e6:.2f} M events/s")
        if name == "engine":
            assert trace.events.height / took >= 1e6


def _seconds(run) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def test_a_schedule_of_64_ranks_and_512_microbatches_simulates_at_once():
    order = generate("1f1b", 64, 512)
    took = min(_seconds(lambda: simulate(order, Durations(), hop=0.1)) for _ in range(3))
    assert took <= 1.0  # 0.1 s on a free core; the bench says how much
    assert schedule.bubble_fraction(simulate(order, Durations())) == pytest.approx(63 / (512 + 63))
