"""One captured plan turned into another, and that one really run afterwards: how far off is the step time?

The short list runs with the engine tests; `pytest -m soak -s tests/test_replan.py` runs and prints all pairs.
"""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from labkit import lab
from labkit.own_runs import PAIRS, Compared, Pair, record_all, try_pair
from labkit.own_runs.plans import PIPELINE
from labkit.plan import Plan
from labkit.replay import Changes, ReplayError, replan, replay, same_plan, step_ns
from labkit.replay.shapes import layer_shapes
from labkit.replay.stepplan import shared_out
from labkit.replay.what_if import what_if
from labkit.trace import Meta, from_events


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    lab.close()


@pytest.mark.engine
@pytest.mark.quiet
def test_a_few_plans_come_out_as_predicted_from_another():
    few = [
        Pair("pipeline of 4", {"pp": 2}),
        Pair("pipeline of 4", {"schedule": "zbv"}),
        Pair("pipeline of 4", {"pp": 2, "dp": 2}),
        Pair("2 replicas", {"dp": 4}),
    ]
    errors = [try_pair(pair).compared.error for pair in few]
    assert sum(map(abs, errors)) / len(errors) <= 0.05, errors


@pytest.mark.engine
@pytest.mark.quiet
def test_a_paced_run_replays_to_its_own_step_time():
    trace = lab.run(same_plan(PIPELINE, pp=2, dp=2, microbatches=4))
    assert step_ns(replay(trace)) == pytest.approx(step_ns(trace), rel=0.03)


def syncs_of(trace, step: int = 1) -> Counter:
    """How often each rank issues each kind of sync in one step, with its bytes."""
    rows = trace.of("sync").filter(pl.col("step") == step).select("rank", "op", "axis", "size_bytes")
    return Counter(rows.iter_rows())


_CHARS = {"task": "chars", "layers": 2, "steps": 2}


@pytest.mark.engine
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"dp": 2}, {"dp": 2, "zero": 1}),
        ({"dp": 2, "zero": 1}, {"dp": 4}),
        ({"dp": 2}, {"dp": 4, "zero": 1, "bucket_mb": 0.01}),
        ({"dp": 2, "task": "digits_cnn"}, {"dp": 2, "zero": 1, "task": "digits_cnn"}),
        (_CHARS, {"tp": 2, "sequence_parallel": True, **_CHARS}),
        (_CHARS, {"tp": 2, "pp": 2, "microbatches": 2, "sequence_parallel": True, **_CHARS}),
        ({"tp": 2, **_CHARS}, {"tp": 2, "dp": 2, "sequence_parallel": True, "recompute": True, **_CHARS}),
        ({"tp": 2, "sequence_parallel": True, **_CHARS}, {"dp": 2, "zero": 1, **_CHARS}),
    ],
)
def test_the_new_plan_issues_the_syncs_that_a_real_run_of_it_does(old, new):
    predicted = replan(lab.run(Plan(**old)), Plan(**new))
    assert syncs_of(predicted) == syncs_of(lab.run(Plan(**new)))


def test_zero_1_shares_out_tensors_by_hand():
    """Three weights of 4096, one of 640, biases: the largest left goes to the rank with least so far."""
    shapes = layer_shapes(Plan(dp=2, zero=1))
    assert shared_out(shapes, 2) == [[4096, 4096], [4096, 640, 64, 64, 64, 10]]


@pytest.mark.engine
@pytest.mark.quiet
def test_zero_1_replays_to_its_own_step_time():
    """Several broadcasts are issued at one time: they share their lane in the order of issue."""
    trace = lab.run(Plan(dp=2, zero=1, pace="forward=8ms,backward=16ms", link="latency=1ms,bandwidth=20MB/s"))
    assert step_ns(replay(trace)) == pytest.approx(step_ns(trace), rel=0.01)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_pair_of_plans():
    def tell(row: Compared) -> None:
        print(f"{row.case}: predicted {row.predicted:.1f}, measured {row.measured:.1f} ms, {row.error:+.1%}")

    rows = record_all(tell).of("replanned")
    mean = sum(abs(row.error) for row in rows) / len(rows)
    print(f"{len(rows)} pairs: mean error {mean:.2%}, worst {max(abs(row.error) for row in rows):.2%}")
    assert len(rows) == len(PAIRS) >= 24
    assert mean <= 0.05


# ---- what cannot be known is refused


def tiny(plan: Plan):
    """A trace of one step of one layer on one rank, as if `plan` had been run."""
    rows = [
        {"rank": 0, "kind": "step", "step": 0, "start_ns": 0, "end_ns": 100},
        {"rank": 0, "kind": "stage_forward", "step": 0, "microbatch": 0, "stage": 0, "start_ns": 10, "end_ns": 40},
        {"rank": 0, "kind": "forward", "step": 0, "layer": "fc0", "start_ns": 10, "end_ns": 40},
        {"rank": 0, "kind": "stage_backward", "step": 0, "microbatch": 0, "stage": 0, "start_ns": 40, "end_ns": 90},
        {"rank": 0, "kind": "backward", "step": 0, "layer": "fc0", "start_ns": 40, "end_ns": 90},
        {"rank": 0, "kind": "optimizer", "step": 0, "start_ns": 92, "end_ns": 100},
    ]
    return from_events(rows, Meta(plan.source, plan.to_dict(), layers=("fc0",), num_cores=2))


def test_durations_go_with_the_samples_of_a_microbatch_by_hand():
    """30 + 50 for 32 samples, 12 around: twice 16 samples take 2 x (15 + 25); replicas sum 650 numbers at no cost."""
    plan = Plan(layers=1, steps=1)
    halves = replan(tiny(plan), same_plan(plan, microbatches=2))
    assert step_ns(replan(tiny(plan), plan)) == 100
    assert step_ns(halves) == 100
    assert halves.of("forward")["end_ns"][0] - halves.of("forward")["start_ns"][0] == 15
    replicas = replan(tiny(plan), same_plan(plan, dp=2))
    assert replicas.meta.source == "predicted" and replicas.meta.num_ranks == 2
    assert step_ns(replicas) == 10 + 15 + 25 + 2 + 8
    assert set(replicas.of("sync")["size_bytes"]) == {4 * (64 * 10 + 10)}
    assert any("no sync was captured" in note for note in replicas.meta.notes)


def test_before_and_after_are_compared_on_one_clock():
    """Two replicas on one core, each worked 40 of 80 by CPU time: as many microbatches as before change nothing."""
    plan = Plan(dp=2, layers=1, steps=1)
    rows = [row for rank in (0, 1) for row in tiny(plan).events.with_columns(rank=pl.lit(rank)).to_dicts()]
    cpu = {"step": 60, "stage_forward": 20, "forward": 20, "stage_backward": 20, "backward": 20, "optimizer": 8}
    rows = [row | {"cpu_ns": cpu[str(row["kind"])]} for row in rows]
    trace = from_events(rows, Meta("measured", plan.to_dict(), num_ranks=2, layers=("fc0",), num_cores=1))
    found = what_if(trace, Changes(), {"microbatches": 1})
    assert step_ns(trace) == 100
    assert step_ns(found.before) == step_ns(found.after) < 100
    assert found.to_dict()["speedup"] == 1
    assert any("by CPU time too" in note for note in found.after.meta.notes)
    assert step_ns(what_if(trace, Changes(), {"microbatches": 1}, "wall").before) == 100


def test_leaving_an_own_schedule_is_said():
    order = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"
    one = Plan(layers=2, steps=1, pace="forward=20ms,backward=40ms")
    rows = tiny(one).events.to_dicts()
    rows += [row | {"layer": "fc1"} for row in rows if row["layer"]]
    captured = from_events(rows, Meta("paced", one.to_dict(), layers=("fc0", "fc1")))
    trace = replan(captured, same_plan(one, pp=2, order=order))
    assert what_if(trace, Changes(), {"microbatches": 4}).changes == ("microbatches 2 -> 4", "schedule own -> 1f1b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 128}, "width was 64 in the captured run"),
        ({"dp": 2, "zero": 3}, "zero 3 gathers and frees parameters as torch's FSDP2 sees fit, which is not modelled"),
        ({"dp": 2, "grad_sync": "ring"}, "grad_sync 'ring' sends its own messages, whose order is not modelled"),
        ({"layers": 2}, "layers was 1"),
    ],
)
def test_what_the_captured_run_cannot_teach_is_refused(changes, message):
    plan = Plan(layers=1, steps=1)
    with pytest.raises(ReplayError, match=message):
        replan(tiny(plan), same_plan(plan, **changes))


def test_a_paced_run_teaches_no_real_speed():
    plan = Plan(layers=1, steps=1, pace="forward=20ms,backward=40ms")
    with pytest.raises(ReplayError, match="paced, so it does not tell how long forward takes"):
        replan(tiny(plan), same_plan(plan, pace=None))
    assert step_ns(replan(tiny(plan), same_plan(plan, time_scale=2.0))) == 120e6 + 20


def test_a_trace_without_a_plan_is_refused():
    trace = tiny(Plan(layers=1, steps=1)).with_meta(plan=None)
    with pytest.raises(ReplayError, match="holds no plan"):
        replan(trace, Plan(layers=1))
