"""What is recorded follows from the plan: as many events as it says, each with the right bytes, all matched."""

import itertools

import polars as pl
import pytest

from labkit import analysis
from labkit.lab import run
from labkit.plan import Plan
from labkit.schedule import SCHEDULES, generate

RUNNABLE = list(SCHEDULES)
STEPS = 3


def traced(**changes):
    return run(Plan(**({"layers": 4, "width": 32, "steps": STEPS, "global_batch": 32} | changes)))


def in_steps(trace, kind, op=None):
    rows = trace.of(kind).filter(pl.col("step").is_not_null())
    return rows.filter(pl.col("op") == op) if op else rows


def parameter_bytes(sizes: list[int]) -> int:
    """float32 weights and biases of fully connected layers of these sizes."""
    return sum(4 * (a * b + b) for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize(
    "changes", [{"dp": 2}, {"dp": 2, "microbatches": 4}, {"dp": 4, "zero": 3}, {"dp": 2, "zero": 1}], ids=str
)
def test_every_layer_once_per_microbatch_step_and_replica(changes):
    trace = traced(**changes)
    expected = 4 * changes.get("microbatches", 1) * STEPS * changes["dp"]
    counts = analysis.counts(trace)
    assert counts["forward"] == counts["backward"] == expected
    assert counts["load"] == counts["loss"] == counts["stage_forward"] == counts["stage_backward"] == expected // 4
    assert counts["optimizer"] == counts["zero_grad"] == counts["step"] == STEPS * changes["dp"]
    assert analysis.unmatched_syncs(trace).is_empty()


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("schedule", RUNNABLE)
def test_pipeline_work_and_messages(schedule, ranks):
    trace = traced(pp=ranks, layers=8, schedule=schedule)
    plan = Plan.from_dict(trace.meta.plan)
    order = generate(schedule, ranks, plan.microbatches, plan.virtual)
    work = plan.layers * plan.microbatches * STEPS
    counts = analysis.counts(trace)
    assert counts["forward"] == work
    whole, halves = counts.get("backward", 0), counts.get("backward_input", 0)
    assert halves == counts.get("backward_weight", 0)
    assert whole + halves == work
    borders = sum(order.placement[s] != order.placement[s + 1] for s in range(order.num_stages - 1))
    sends = 2 * borders * plan.microbatches * STEPS  # activations down, gradients up
    assert in_steps(trace, "sync", "send").height == in_steps(trace, "sync", "recv").height == sends
    width_bytes = 4 * plan.width * plan.global_batch // plan.microbatches
    assert set(in_steps(trace, "sync", "send")["size_bytes"]) == {width_bytes}
    assert analysis.unmatched_syncs(trace).is_empty()


@pytest.mark.parametrize("schedule", RUNNABLE)
def test_ranks_did_the_work_in_the_schedules_order(schedule):
    trace = traced(pp=4, layers=8, schedule=schedule)
    plan = Plan.from_dict(trace.meta.plan)
    order = generate(schedule, 4, plan.microbatches, plan.virtual)
    letter = {"stage_forward": "F", "stage_backward": "B", "stage_backward_input": "I", "stage_backward_weight": "W"}
    for rank in range(4):
        done = trace.of(*letter).filter((pl.col("rank") == rank) & (pl.col("step") == 1)).sort("start_ns")
        seen = [f"{stage}{letter[kind]}{mb}" for stage, kind, mb in done.select("stage", "kind", "microbatch").rows()]
        assert seen == [str(action) for action in order.orders[rank]]


def test_each_message_says_which_microbatch_it_carries():
    trace = traced(pp=2, microbatches=4)
    sends = in_steps(trace, "sync", "send").filter(pl.col("step") == 0)
    forward = sends.filter(pl.col("rank") == 0).sort("start_ns")
    assert forward["microbatch"].to_list() == [0, 1, 2, 3]
    assert forward["stage"].to_list() == [0] * 4
    backward = sends.filter(pl.col("rank") == 1).sort("start_ns")
    assert backward["microbatch"].to_list() == [0, 1, 2, 3]


def test_ddp_reduces_every_bucket_once_a_step():
    sizes = [64, 32, 32, 32, 10]
    one = in_steps(traced(dp=2, microbatches=2), "sync", "all_reduce")
    assert one.height == STEPS * 2
    assert set(one["size_bytes"]) == {parameter_bytes(sizes)}
    small = in_steps(traced(dp=2, bucket_mb=0.004), "sync", "all_reduce").filter(pl.col("step") == STEPS - 1)
    buckets = small.filter(pl.col("rank") == 0)
    assert buckets.height > 1
    assert buckets["size_bytes"].sum() == parameter_bytes(sizes)


def test_naive_data_parallel_reduces_every_parameter():
    rows = in_steps(traced(dp=2, grad_sync="naive"), "sync", "all_reduce").filter(pl.col("step") == 0)
    sizes = rows.filter(pl.col("rank") == 0)["size_bytes"].to_list()
    assert sizes == [4 * n for n in (64 * 32, 32, 32 * 32, 32, 32 * 32, 32, 32 * 10, 10)]


@pytest.mark.parametrize(("grad_sync", "messages"), [("ring", 2 * 3 * 4), ("tree", 2 * 3), ("gather", 2 * 3)])
def test_all_reduce_by_hand_sends_what_its_algorithm_says(grad_sync, messages):
    """4 ranks: a ring sends 2 (n - 1) chunks from each rank; tree and gather send up and down over n - 1 edges."""
    trace = traced(dp=4, grad_sync=grad_sync)
    sends = in_steps(trace, "sync", "send").filter(pl.col("step") == 0)
    assert sends.height == messages
    whole = parameter_bytes([64, 32, 32, 32, 10])
    assert sends["size_bytes"].sum() == 2 * 3 * whole


def test_zero3_gathers_and_scatters_every_layer():
    rows = in_steps(traced(dp=2, zero=3), "sync").filter((pl.col("step") == 1) & (pl.col("rank") == 0))
    ops = dict(rows.group_by("op").len().rows())
    assert ops == {"all_gather": 8, "reduce_scatter": 4}  # each layer gathered for forward and backward


def test_zero2_keeps_gathered_weights_until_backward():
    rows = in_steps(traced(dp=2, zero=2), "sync").filter((pl.col("step") == 1) & (pl.col("rank") == 0))
    assert dict(rows.group_by("op").len().rows()) == {"all_gather": 4, "reduce_scatter": 4}


@pytest.mark.parametrize("tensor", ["dtensor", "by_hand"])
def test_tensor_parallel_syncs_per_pair_of_layers(tensor):
    """Column then row: one all-reduce forward for each pair, one backward except for the first, whose input is data."""
    rows = in_steps(traced(tp=2, tensor=tensor), "sync").filter((pl.col("step") == 1) & (pl.col("rank") == 0))
    assert rows["op"].to_list() == ["all_reduce"] * 3
    assert rows["axis"].to_list() == ["tp"] * 3
    batch = 32 * 4
    assert sorted(rows["size_bytes"].to_list()) == sorted([batch * 32, batch * 10, batch * 32])


def test_a_transformer_block_syncs_twice_forward_and_twice_backward():
    trace = traced(task="chars", tp=2, layers=3)
    rows = in_steps(trace, "sync").filter((pl.col("step") == 1) & (pl.col("rank") == 0))
    in_blocks = rows.filter(pl.col("layer").str.starts_with("block"))
    assert in_blocks.group_by("layer").len().sort("layer").rows() == [("block0", 4), ("block1", 4), ("block2", 4)]


def test_three_axes_talk_in_their_own_groups():
    trace = traced(pp=2, dp=2, tp=2)
    groups = in_steps(trace, "sync").select("axis", "group").unique().sort("axis", "group")
    found = {}
    for axis, group in groups.rows():
        found.setdefault(axis, []).append(tuple(group))
    mesh = trace.meta.mesh
    assert found["tp"] == list(mesh.groups("tp"))
    assert found["dp"] == list(mesh.groups("dp"))
    assert found["pp"] == list(mesh.groups("pp"))
    assert analysis.unmatched_syncs(trace).is_empty()


def test_replicas_load_disjoint_samples_that_make_the_serial_batch():
    serial = traced().of("load").filter(pl.col("step") == 1)["samples"].explode().to_list()
    parallel = traced(dp=2, microbatches=2).of("load").filter(pl.col("step") == 1).sort("rank", "microbatch")
    assert parallel["samples"].explode().to_list() == serial
    assert len(set(serial)) == 32
