"""Paced runs and emulated links keep the times that were set, and say so where they cannot."""

import polars as pl
import pytest

from labkit import analysis, schedule
from labkit.lab import run
from labkit.link import as_link, link_seconds
from labkit.plan import Plan
from labkit.schedule import Durations

pytestmark = pytest.mark.quiet

PACE = "forward=20ms,backward=40ms"
OTHERS = ["naive", "interleaved_1f1b", "looped_bfs", "interleaved_zb", "zbv", "dualpipev"]


@pytest.mark.parametrize("microbatches", [4, 8, 16])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble_is_the_published_one(name, microbatches):
    plan = Plan(pp=4, schedule=name, microbatches=microbatches, global_batch=2 * microbatches, steps=5, pace=PACE)
    measured = analysis.bubble(run(plan))
    ideal = 3 / (microbatches + 3)
    assert measured.of_total == pytest.approx(ideal, rel=0.03)
    assert measured.of_ideal == pytest.approx(3 / microbatches, rel=0.05)


@pytest.mark.parametrize("name", OTHERS)
def test_bubble_is_the_schedules_own_ideal(name):
    plan = Plan(pp=4, layers=8, schedule=name, steps=5, global_batch=32, pace=PACE)
    durations = Durations(forward=20, backward_input=20, backward_weight=20)
    ideal = schedule.ideal_bubble(name, 4, plan.microbatches, plan.virtual, durations)
    assert analysis.bubble(run(plan)).of_total == pytest.approx(ideal, rel=0.08)


def test_operations_last_as_set_and_layers_share_them():
    trace = run(Plan(pp=2, layers=4, steps=3, pace="forward=20ms,backward_input=20ms,backward_weight=10ms"))
    for kind, duration_ms in (("stage_forward", 20), ("stage_backward", 30), ("forward", 10), ("backward", 15)):
        took = (trace.of(kind)["end_ns"] - trace.of(kind)["start_ns"]).median() / 1e6
        assert took == pytest.approx(duration_ms, rel=0.02)


def test_a_backwards_gradients_overlap_their_sync():
    """Small buckets: the all-reduce of the last layers starts while the first layers are still in backward."""
    trace = run(Plan(dp=2, layers=8, steps=3, bucket_mb=0.02, pace="forward=20ms,backward=80ms"))
    syncs = trace.of("sync").filter((pl.col("step") == 2) & (pl.col("rank") == 0) & (pl.col("op") == "all_reduce"))
    backward = trace.of("stage_backward").filter((pl.col("step") == 2) & (pl.col("rank") == 0)).row(0, named=True)
    assert syncs.height > 2
    assert syncs["start_ns"].min() < backward["start_ns"] + 0.5 * (backward["end_ns"] - backward["start_ns"])


def test_the_optimizer_too_can_be_paced():
    rows = run(Plan(dp=2, pace="forward=5ms,backward=5ms,optimizer=15ms")).of("optimizer")
    assert ((rows["end_ns"] - rows["start_ns"]).median() / 1e6) == pytest.approx(15, rel=0.02)


def test_time_scale_slows_everything_that_is_set():
    trace = run(Plan(pp=2, pace="forward=2ms,backward=4ms", time_scale=10))
    assert "10 times slower" in trace.title
    rows = trace.of("stage_forward")
    assert ((rows["end_ns"] - rows["start_ns"]).median() / 1e6) == pytest.approx(20, rel=0.02)


def measured_sync_ms(plan: Plan) -> tuple[float, int]:
    """Median time from the last arrival to completion of the all-reduce in ms, and its bytes.

    Of the member that was let go first: other work on this machine wakes a sleeper late, and seldom both.
    """
    rows = run(plan).of("sync").filter((pl.col("step") > 0) & (pl.col("op") == "all_reduce"))
    ends = rows.group_by("group", "seq").agg(pl.col("start_ns").max(), pl.col("end_ns").min())
    return float((ends["end_ns"] - ends["start_ns"]).median()) / 1e6, rows["size_bytes"][0]


@pytest.mark.parametrize("width", [8, 64, 1000], ids=lambda w: f"width{w}")
@pytest.mark.parametrize("ranks", [2, 4])
def test_an_emulated_link_takes_latency_and_bytes_over_bandwidth(ranks, width):
    """1 KB to 4 MB, at four times what bare gloo needed here just before."""
    bare = Plan(dp=ranks, layers=3, width=width, steps=6, global_batch=8)
    bare_ms, size = measured_sync_ms(bare)
    half_s = max(2 * bare_ms, 4.0) / 1e3
    link = as_link({"latency": half_s, "bandwidth": size * 2 * (ranks - 1) / ranks / half_s})
    set_ms = sum(link_seconds(link, "all_reduce", size, ranks)) * 1e3
    emulated = Plan(dp=ranks, layers=3, width=width, steps=6, global_batch=8, link=link)
    tries = (measured_sync_ms(emulated)[0] for _ in range(3))  # other work on this machine may wake a sleeper late
    assert any(took_ms == pytest.approx(set_ms, rel=0.05) for took_ms in tries)


def test_a_straggler_is_not_charged_twice():
    """All members of a collective complete together, latency after the *last* arrival."""
    plan = Plan(dp=2, tp=2, layers=4, steps=3, pace="forward=20ms,backward=20ms", link="latency=10ms,bandwidth=1GB/s")
    rows = run(plan).of("sync").filter((pl.col("step") > 0) & (pl.col("op") == "all_reduce"))
    groups = rows.group_by("group", "seq").agg(pl.col("start_ns").max(), pl.col("end_ns"), pl.col("size_bytes").first())
    assert groups.height > 4
    for row in groups.to_dicts():
        assert len(set(row["end_ns"])) == 1
        assert row["end_ns"][0] - row["start_ns"] >= 10_000_000


def test_messages_arrive_latency_and_transfer_after_they_were_sent():
    plan = Plan(pp=2, microbatches=4, width=64, global_batch=32, pace=PACE, link="latency=10ms,bandwidth=1MB/s")
    rows = run(plan).of("sync").filter(pl.col("step").is_not_null() & pl.col("op").is_in(["send", "recv"]))
    sender = pl.when(pl.col("op") == "send").then("rank").otherwise("peer")
    pairs = rows.with_columns(sender.alias("from")).pivot("op", index=["from", "seq"], values=["start_ns", "end_ns"])
    late_ms = (pairs["end_ns_recv"] - pairs["start_ns_send"]) / 1e6
    transfer_ms = 8 * 64 * 4 / 1e6 * 1e3
    assert late_ms.min() == pytest.approx(10 + transfer_ms, rel=0.01)


def test_a_link_too_fast_for_this_machine_is_admitted():
    trace = run(Plan(dp=2, link="nvlink4", steps=4))
    assert any("time_scale" in note for note in trace.meta.notes)


def test_paced_traces_say_how_late_the_real_work_was():
    notes = run(Plan(pp=2, pace="forward=20ms,backward=20ms")).meta.notes
    assert any("emulated device" in note for note in notes)


def test_a_slow_rank_takes_longer_and_the_others_wait_for_it():
    trace = run(Plan(dp=2, steps=5, pace=PACE, slow="1=1.5"))
    length_ms = (pl.col("end_ns") - pl.col("start_ns")) / 1e6
    work = trace.of("stage_forward", "stage_backward").group_by("kind", "rank").agg(length_ms.median()).rows()
    assert {(kind, rank): ms for kind, rank, ms in work} == pytest.approx(
        {("stage_forward", 0): 20, ("stage_forward", 1): 30, ("stage_backward", 0): 40, ("stage_backward", 1): 60},
        rel=0.03,
    )
    waited = trace.of("wait").filter(pl.col("op") == "all_reduce").group_by("rank").agg(length_ms.median()).sort("rank")
    assert waited["rank"][0] == 0 and waited["end_ns"][0] == pytest.approx(30, rel=0.2)
