"""One captured plan turned into another, and that one really run afterwards: how far off is the step time?

The short list runs with the engine tests; `pytest -m soak -s tests/test_replan.py` runs and prints all pairs.
"""

from __future__ import annotations

import polars as pl
import pytest

from labkit import lab
from labkit.plan import Plan
from labkit.replay import Changes, ReplayError, replan, replay, same_plan, step_ns
from labkit.replay.what_if import what_if
from labkit.trace import Meta, from_events

LINK = {"link": "latency=2ms,bandwidth=10MB/s"}
PIPELINE = Plan(
    pp=4, layers=8, microbatches=8, global_batch=96, steps=4, pace="forward=20ms,backward=40ms,optimizer=5ms", **LINK
)
REPLICAS = Plan(dp=2, layers=8, width=128, global_batch=96, steps=4, pace="forward=60ms,backward=120ms", **LINK)

FROM_PIPELINE = [
    {"pp": 2},
    {"microbatches": 4},
    {"microbatches": 12},
    {"microbatches": 16},
    {"schedule": "gpipe"},
    {"schedule": "gpipe", "microbatches": 4},
    {"schedule": "looped_bfs"},
    {"schedule": "interleaved_1f1b"},
    {"schedule": "interleaved_zb"},
    {"schedule": "zbv"},
    {"schedule": "dualpipev"},
    {"schedule": "zb_h1"},
    {"schedule": "zb_h2"},
    {"order": "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3", "pp": 2},
    {"pp": 2, "schedule": "zbv", "microbatches": 4},
    {"pp": 2, "schedule": "interleaved_1f1b", "virtual": 4},
    {"pp": 2, "dp": 2},
    {"pp": 2, "dp": 2, "schedule": "gpipe", "microbatches": 4},
    {"pp": 2, "tp": 2, "microbatches": 4, "pace": "forward=60ms,backward=120ms", "steps": 6},
    {"link": "latency=20ms,bandwidth=1MB/s"},
    {"link": "latency=200us,bandwidth=1GB/s"},
    {"link": "latency=5ms,bandwidth=200kB/s", "microbatches": 4},
    {"pp": 2, "dp": 2, "link": {"dp": "latency=1ms,bandwidth=500kB/s", "pp": "latency=10ms,bandwidth=10MB/s"}},
    {"pp": 1, "dp": 4, "microbatches": 2},
    {"pp": 1, "dp": 2, "microbatches": 4},
]
FROM_REPLICAS = [
    {"dp": 4},
    {"link": "latency=1ms,bandwidth=1MB/s"},
    {"link": "latency=1ms,bandwidth=1MB/s", "bucket_mb": 0.1},
    {"dp": 4, "link": "latency=10ms,bandwidth=2MB/s", "bucket_mb": 0.2},
    {"microbatches": 3},
    {"dp": 1, "tp": 2, "steps": 6},  # DTensor's first two steps are slow
    {"tp": 2, "steps": 6},
    {"dp": 1, "pp": 2, "microbatches": 4},
    {"dp": 1, "pp": 4, "microbatches": 6, "schedule": "zbv"},
]
PAIRS = [(PIPELINE, changes) for changes in FROM_PIPELINE] + [(REPLICAS, changes) for changes in FROM_REPLICAS]


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    lab.close()


def errors_of(pairs) -> list[float]:
    """Signed relative error of each predicted step time; prints each pair."""
    captured = {}
    errors = []
    for old, changes in pairs:
        if id(old) not in captured:
            captured[id(old)] = lab.run(old)
        new = same_plan(old, **changes)
        predicted = step_ns(replan(captured[id(old)], new))
        found = step_ns(kept_pace(new))
        errors.append(predicted / found - 1)
        name = "pipeline" if old is PIPELINE else "replicas"
        print(f"{name} -> {changes}: predicted {predicted / 1e6:.1f} ms, run {found / 1e6:.1f} ms, {errors[-1]:+.1%}")
    return errors


def kept_pace(plan: Plan):
    """A run of the plan; once more if this machine was too busy to keep the set times."""
    trace = lab.run(plan)
    return lab.run(plan) if any("took longer here than set" in note for note in trace.meta.notes) else trace


@pytest.mark.engine
def test_a_few_plans_come_out_as_predicted_from_another():
    few = [
        ({"pp": 2}, PIPELINE),
        ({"schedule": "zbv"}, PIPELINE),
        ({"pp": 2, "dp": 2}, PIPELINE),
        ({"dp": 4}, REPLICAS),
    ]
    errors = errors_of([(old, changes) for changes, old in few])
    assert sum(map(abs, errors)) / len(errors) <= 0.05, errors


@pytest.mark.engine
def test_a_paced_run_replays_to_its_own_step_time():
    trace = lab.run(same_plan(PIPELINE, pp=2, dp=2, microbatches=4))
    assert step_ns(replay(trace)) == pytest.approx(step_ns(trace), rel=0.03)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_pair_of_plans():
    errors = errors_of(PAIRS)
    mean = sum(map(abs, errors)) / len(errors)
    print(f"{len(errors)} pairs: mean error {mean:.2%}, worst {max(map(abs, errors)):.2%}")
    assert len(errors) >= 24
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
        ({"dp": 2, "zero": 3}, "a plan with zero 3 is not modelled"),
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
