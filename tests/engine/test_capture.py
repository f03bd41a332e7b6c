"""The recorder: bounded, able to keep values, true about memory, and free when off."""

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from labkit import analysis
from labkit.lab import run
from labkit.plan import Plan
from labkit.report import describe, summary
from labkit.schedule import SCHEDULES


def value(row) -> np.ndarray:
    return np.frombuffer(row["data"], dtype=row["dtype"]).reshape(row["shape"])


def values(trace, what, **where):
    rows = trace.of("value").filter(pl.col("op") == what)
    for column, wanted in where.items():
        rows = rows.filter(pl.col(column) == wanted)
    return rows.sort("rank", "start_ns").to_dicts()


def test_past_the_limit_events_are_counted_and_the_trace_says_so():
    trace = run(Plan(dp=2, steps=5, max_events=20))
    assert trace.events.group_by("rank").len()["len"].to_list() == [20, 20]
    whole = run(Plan(dp=2, steps=5)).of("wait", "sync").height
    assert trace.meta.dropped_events >= 2 * 5 * (3 * 4 + 6) - 40
    assert whole > 0
    assert any("max_events" in note for note in trace.meta.notes)


def test_nothing_is_recorded_when_off():
    trace = run(Plan(dp=2, record=()))
    assert trace.events.is_empty()
    assert len(trace.meta.losses) == 3


@pytest.mark.parametrize("record", [("compute",), ("sync",), ("compute", "memory")])
def test_only_what_is_asked_for(record):
    counts = analysis.counts(run(Plan(dp=2, record=record)))
    assert ("forward" in counts) == ("compute" in record)
    assert ("sync" in counts) == ("sync" in record)


def test_values_of_a_cut_matrix_make_the_whole_product():
    """Rank r holds rows of the first weight: x W_r^T side by side is x W^T."""
    trace = run(Plan(tp=2, layers=2, width=16, global_batch=4, steps=1, dtype="float64", value_limit_bytes="64KiB"))
    whole = run(Plan(layers=2, width=16, global_batch=4, steps=1, dtype="float64", value_limit_bytes="64KiB"))
    (x,) = (value(row) for row in values(whole, "input", layer="fc0"))
    (weight,) = (value(row) for row in values(whole, "weight", layer="fc0.linear.weight"))
    (bias,) = (value(row) for row in values(whole, "weight", layer="fc0.linear.bias"))
    parts = [value(values(trace, "weight", layer="fc0.linear.weight", rank=rank)[0]) for rank in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), weight)
    products = [value(values(trace, "output", layer="fc0", rank=rank)[0]) for rank in range(2)]
    np.testing.assert_allclose(np.concatenate(products, axis=1), np.maximum(x @ weight.T + bias, 0), atol=1e-15)


CHARS = Plan(task="chars", layers=1, width=16, heads=2, context=8, global_batch=2, steps=1, dtype="float64")


@pytest.mark.parametrize("tensor", ["dtensor", "by_hand"])
def test_linear_layers_inside_a_transformer_block_tell_what_they_get_and_give(tensor):
    """Column, then row: parts of `up` stay on their rank, go through GELU into `down`, and one all-reduce adds up."""
    trace = run(replace(CHARS, tp=2, tensor=tensor, value_limit_bytes="64KiB"))

    def of(op, name, rank):
        (row,) = values(trace, op, layer=f"block0.{name}", rank=rank)
        return value(row)

    summands = []
    for rank in range(2):
        x, y = of("input", "up", rank), of("output", "up", rank)
        np.testing.assert_array_equal(x, of("input", "up", 0))
        np.testing.assert_allclose(y, x @ of("weight", "up.weight", rank).T + of("weight", "up.bias", rank), atol=1e-14)
        passed_on = of("input", "down", rank)
        assert passed_on.shape == y.shape == (2, 8, 32)
        np.testing.assert_allclose(passed_on, y * 0.5 * (1 + np.vectorize(math.erf)(y / math.sqrt(2))), atol=1e-14)
        summands.append(passed_on @ of("weight", "down.weight", rank).T)
    whole = sum(summands) + of("weight", "down.bias", 0)
    for rank in range(2):
        np.testing.assert_allclose(of("output", "down", rank), whole, atol=1e-14)
    ops = trace.of("sync").filter((pl.col("rank") == 0) & (pl.col("layer") == "block0") & (pl.col("axis") == "tp"))
    assert ops.sort("start_ns")["op"].to_list()[:2] == ["all_reduce", "all_reduce"]  # attention's, then this one


def test_values_change_no_bit_of_the_result():
    plans = [replace(CHARS, tp=2, steps=3, value_limit_bytes=limit) for limit in (0, "64KiB")]
    assert run(plans[0]).meta.losses == run(plans[1]).meta.losses


def test_a_layer_that_is_one_linear_layer_tells_once():
    trace = run(Plan(layers=2, width=8, steps=1, value_limit_bytes="64KiB"))
    assert {row["layer"] for row in values(trace, "input")} == {"fc0", "fc1"}


def test_gradients_before_the_sync_average_to_those_after():
    trace = run(Plan(dp=2, layers=2, width=8, steps=1, dtype="float64", value_limit_bytes="64KiB"))
    name = "fc1.linear.weight"
    before = [value(values(trace, "grad_local", rank=rank, layer=name)[0]) for rank in range(2)]
    after = [value(values(trace, "grad", rank=rank, layer=name)[0]) for rank in range(2)]
    assert np.abs(before[0] - before[1]).max() > 1e-4  # different samples, different gradients
    np.testing.assert_allclose((before[0] + before[1]) / 2, after[0], atol=1e-16)
    np.testing.assert_array_equal(after[0], after[1])


def test_what_a_sync_carried():
    """The ring's messages: what a rank receives is what its neighbour sent."""
    trace = run(Plan(dp=2, layers=1, steps=1, grad_sync="ring", value_limit_bytes="64KiB"))
    sent = value(values(trace, "sync_in", rank=0)[0])
    received = value(values(trace, "sync_out", rank=1)[0])
    np.testing.assert_array_equal(sent, received)


def test_values_over_the_limit_are_left_out():
    trace = run(Plan(dp=2, steps=1, value_limit_bytes=1000))
    assert trace.of("value")["size_bytes"].max() <= 1000


def memory(**changes):
    trace = run(Plan(**({"layers": 4, "width": 64, "global_batch": 32, "optimizer": "adam", "steps": 2} | changes)))
    step = trace.events.filter((pl.col("step") == 1) & (pl.col("rank") == 0) & pl.col("param_bytes").is_not_null())
    return {name: step[f"{name}_bytes"].max() for name in ("param", "grad", "optimizer", "activation")}


def test_memory_of_parameters_gradients_and_optimizer():
    parameters = 4 * (64 * 64 + 64) * 3 + 4 * (64 * 10 + 10)
    serial = memory()
    assert serial["param"] == serial["grad"] == parameters
    steps_of_adam = 4 * 8  # one number for each of 8 parameters
    assert serial["optimizer"] == 2 * parameters + steps_of_adam


def test_memory_of_activations_is_what_autograd_keeps():
    """Inputs of 4 linear layers (the ReLU outputs are the same tensors) and what the loss keeps, then nothing."""
    kept = 4 * 32 * 64 * 4
    assert kept <= memory()["activation"] <= kept + 4 * 32 * 10 * 4
    trace = run(Plan(layers=4, steps=2))
    ends = trace.of("optimizer")["activation_bytes"]
    assert ends.to_list() == [0, 0]


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_after_a_step_no_activation_is_held(schedule):
    trace = run(Plan(pp=2, layers=4, schedule=schedule, steps=3))
    assert trace.of("step")["activation_bytes"].to_list() == [0] * 6


def test_gathered_weights_count_while_their_layer_works():
    """ZeRO 3 over 4 ranks: shards of 4 layers, and in the events of a layer that layer's whole weights."""
    trace = run(Plan(dp=4, zero=3, layers=4, width=64, steps=2))
    own = trace.events.filter((pl.col("rank") == 0) & (pl.col("step") == 1) & (pl.col("layer") == "fc1"))
    shards = trace.of("optimizer").filter(pl.col("rank") == 0)["param_bytes"][0]
    whole = 4 * (64 * 64 + 64)
    assert own.filter(pl.col("kind") == "forward")["param_bytes"].to_list() == [shards + whole]
    assert own.filter(pl.col("kind") == "backward")["param_bytes"].to_list() == [shards + whole]


def test_gradients_appear_layer_by_layer():
    rows = run(Plan(dp=2, layers=4, steps=2)).of("backward").filter((pl.col("rank") == 0) & (pl.col("step") == 1))
    grown = rows.sort("start_ns")["grad_bytes"].to_list()
    assert grown == sorted(grown) and len(set(grown)) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"dp": 2, "zero": 3},
        {"dp": 2, "tp": 2},
        {"pp": 2, "dp": 2, "zero": 2},
        {"task": "chars", "tp": 2, "sequence_parallel": True},
        {"task": "chars", "dp": 2, "zero": 3, "recompute": True},
    ],
    ids=str,
)
def test_values_can_be_kept_of_sharded_plans(changes):
    assert not run(Plan(steps=2, value_limit_bytes="4KiB", **changes)).of("value").is_empty()


def test_only_syncs_still_know_their_step():
    syncs = run(Plan(dp=2, record=("sync",))).of("sync")
    assert set(syncs["step"].drop_nulls()) == {0, 1, 2}


def test_a_diverged_run_says_so_everywhere():
    trace = run(Plan(dp=2, lr=1e30, steps=5), verify=True)
    assert np.isnan(trace.meta.equality["loss_max_abs_diff"])
    assert "nan" in describe(trace)
    assert any("diverged" in note for note in trace.meta.notes)
    assert json.loads(json.dumps(summary(trace), allow_nan=False))["losses"][-1] is None


def test_zero_shares_memory_out():
    whole, sharded = memory(), memory(dp=2, zero=2)
    assert sharded["optimizer"] == pytest.approx(whole["optimizer"] / 2, rel=0.02)
    assert memory(dp=2, zero=1)["optimizer"] < 0.7 * whole["optimizer"]


def test_recomputation_keeps_fewer_activations():
    chars = {"task": "chars", "width": 32, "global_batch": 8}
    assert memory(**chars, recompute=True)["activation"] < 0.5 * memory(**chars)["activation"]


def test_pipeline_stages_keep_activations_of_the_microbatches_under_way():
    """1F1B: the first of 4 stages holds 4 microbatches, the third 2; of each a stage keeps three tensors (8, 64)."""
    trace = run(Plan(pp=4, layers=8, microbatches=8, global_batch=64, steps=2))
    most = trace.events.filter(pl.col("step") == 1).group_by("rank").agg(pl.col("activation_bytes").max()).sort("rank")
    held = most["activation_bytes"].to_list()
    assert held[:3] == [under_way * 3 * 8 * 64 * 4 for under_way in (4, 3, 2)]


def test_the_first_stages_share_of_a_step_is_counted_in_cpu_time_too():
    rows = run(Plan(dp=2)).of("forward")
    assert (rows["cpu_ns"] > 0).all()
    assert (rows["cpu_ns"] <= 1.5 * (rows["end_ns"] - rows["start_ns"]) + 100_000).all()


def test_recording_changes_no_bit_of_the_result():
    plans = [Plan(dp=2, zero=2, steps=3, record=record) for record in ((), ("compute", "sync", "memory"))]
    assert run(plans[0]).meta.losses == run(plans[1]).meta.losses


def test_weights_never_count_as_activations():
    """The hand-written pair keeps the same as DTensor under replicate, which swaps gathered weights in."""
    kept = [
        run(Plan(dp=2, tp=2, layers=4, tensor=tensor, steps=2)).events["activation_bytes"].max()
        for tensor in ("dtensor", "by_hand")
    ]
    assert kept[0] == kept[1] > 0
