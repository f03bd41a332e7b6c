"""Runs beside each other: hand-worked numbers."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.comparison import different_training, loss_difference, numbers, predict_from, scaling
from labkit.plan import Plan
from labkit.replay import step_ns
from labkit.trace import Meta, Trace, from_events, load

sys.path.insert(0, str(Path(__file__).parent / "view"))
import example_traces as examples

PIPELINE = load(Path(__file__).parents[1] / "assets" / "pipeline_1f1b.parquet")
MS = 1_000_000


def run(num_ranks: int, step_ms: float, batch: int = 10, losses: tuple[float, ...] = (2.0, 1.0)) -> Trace:
    """Ranks that work half of their only step."""
    rows = [
        dict(rank=rank, kind=kind, step=0, start_ns=0, end_ns=round(part * step_ms * MS))
        for rank in range(num_ranks)
        for kind, part in (("step", 1), ("stage_forward", 0.5))
    ]
    plan = {"task": "digits", "dp": num_ranks, "global_batch": batch, "seed": 0}
    return from_events(rows, Meta("paced", plan=plan, num_ranks=num_ranks, losses=losses))


def test_numbers_of_one_run():
    found = numbers(run(2, 50))
    assert (found.num_ranks, found.step_ns, found.samples_per_s) == (2, 50 * MS, 200)
    assert found.working == 0.5 and found.bubble is None
    assert found.sync_bytes == {} and found.memory_peak_bytes is None


def test_numbers_of_a_pipeline_are_those_of_the_analysis():
    found = numbers(PIPELINE)
    assert found.bubble == pytest.approx(3 / 11, abs=0.005)  # (p - 1) / (m + p - 1)
    assert found.sync_bytes == {"pp": pytest.approx(48 * 1024, rel=0.01)}
    assert found.samples_per_s == pytest.approx(64 / (step_ns(PIPELINE) / 1e9))


@pytest.mark.parametrize("trace", [examples.empty(), examples.single(), examples.dense(100)])
def test_what_a_trace_cannot_say_is_none(trace):
    found = numbers(trace)
    assert found.step_ns is None and found.samples_per_s is None


def test_scaling_is_against_the_fewest_ranks():
    table = scaling([run(4, 31.25), run(1, 100), examples.empty()])  # 320 and 100 samples/s
    assert table["num_ranks"].to_list() == [1, 4]
    assert table["speedup"].to_list() == pytest.approx([1, 3.2])
    assert table["ideal"].to_list() == [1, 4]
    assert table["efficiency"].to_list() == pytest.approx([1, 0.8])
    assert scaling([]).is_empty()


def test_losses_are_compared_step_by_step_as_far_as_both_go():
    one, other = run(1, 10, losses=(2.0, 1.0, 0.5)), run(2, 10, losses=(2.0, 1.25))
    assert loss_difference(one, other) == 0.25
    assert loss_difference(one, run(1, 10, losses=())) is None


def test_only_what_decides_the_losses_makes_two_trainings():
    one = run(1, 10)
    assert different_training(one, run(4, 10)) == ()
    other = run(1, 10, batch=20)
    other = replace(other, meta=replace(other.meta, plan=other.meta.plan | {"seed": 1}))
    assert different_training(one, other) == ("global_batch", "seed")


def test_a_paced_run_foretells_itself():
    found = predict_from(PIPELINE, PIPELINE)
    assert found.clock == "wall" and found.trace.meta.source == "predicted"
    assert abs(found.error_percent) < 3
    assert found.step_ns == step_ns(PIPELINE)


def test_what_cannot_be_foretold_says_why():
    wider = PIPELINE.with_meta(plan=Plan(**{**PIPELINE.meta.plan, "width": 128}).to_dict())
    found = predict_from(PIPELINE, wider)
    assert found.predicted_ns is None and found.error_percent is None and "width" in found.problem
    assert predict_from(PIPELINE, examples.empty()).problem
