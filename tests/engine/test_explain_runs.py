"""What is said of real runs whose trouble is known, as it was put there: asleep in a layer, or on a slow link."""

import time

import polars as pl
import pytest
import torch
from torch import nn

import labkit
from labkit import analysis, explain
from labkit.engine.own import own_task
from labkit.plan import Plan

pytestmark = pytest.mark.quiet

LAYERS = 3


def sleepy_task(sleep_ms: dict[int, int], *, on_rank: int | None = None):
    """Layers that sleep in forward: it needs no core, so a busy machine changes little."""

    class Sleepy(nn.Module):
        def __init__(self, sleep_s: float):
            super().__init__()
            self.linear, self.sleep_s = nn.Linear(4, 4), sleep_s

        def forward(self, x):
            import torch.distributed as dist

            if on_rank is None or (dist.is_initialized() and dist.get_rank() == on_rank):
                time.sleep(self.sleep_s)
            return self.linear(x)

    layers = {f"fc{i}": Sleepy(sleep_ms.get(i, 0) / 1e3) for i in range(LAYERS)}
    return own_task(layers, lambda i: (torch.ones(len(i), 4), torch.zeros(len(i), dtype=torch.long)), num_samples=64)


def check_adds_up(trace):
    """Every rank's causes together are its whole time without work, and each step's path reaches to its end."""
    for row in analysis.breakdown(trace).to_dicts():
        of_rank = analysis.gaps(trace).filter(pl.col("rank") == row["rank"])
        assert of_rank["duration_ns"].sum() == row["idle_ns"] + row["exposed_sync_ns"]
    steps = trace.of("step")
    for step in steps["step"].unique():
        path = analysis.critical_path(trace, step)
        assert path["end_ns"].max() == steps.filter(pl.col("step") == step)["end_ns"].max()
        assert path["start_ns"].to_list()[1:] == path["end_ns"].to_list()[:-1]


def waits(trace, rank: int, cause: str) -> pl.DataFrame:
    return explain.explain(trace).filter((pl.col("rank") == rank) & (pl.col("cause") == cause))


def waited_for(rows: pl.DataFrame) -> int:
    """The rank that was waited for most, in all: other programs on the machine make short waits for anybody."""
    return rows.group_by("by_rank").agg(pl.col("duration_ns").sum()).top_k(1, by="duration_ns")["by_rank"][0]


def test_a_rank_that_sleeps_in_a_layer_is_the_straggler():
    plan = Plan(task="own", dp=3, layers=LAYERS, global_batch=48, steps=3)
    trace = labkit.run(plan, task=sleepy_task({1: 150}, on_rank=1))
    check_adds_up(trace)
    for rank in (0, 2):
        rows = waits(trace, rank, "straggler")
        assert waited_for(rows) == 1
        told = rows.filter(pl.col("by_rank") == 1).top_k(1, by="duration_ns").row(0, named=True)
        assert told["duration_ns"] > 50e6
        assert "for rank 1, which came last: meanwhile it spent" in told["sentence"]
        assert told["sentence"].endswith("in forward fc1")
    path = analysis.critical_path(trace).filter((pl.col("layer") == "fc1") & (pl.col("kind") == "forward"))
    assert path.filter(pl.col("rank") == 1)["duration_ns"].sum() > 100e6


def test_a_stage_that_sleeps_longest_is_the_slow_one():
    plan = Plan(task="own", pp=3, layers=LAYERS, global_batch=48, microbatches=8, steps=2)
    trace = labkit.run(plan, task=sleepy_task({0: 10, 1: 80, 2: 10}))
    check_adds_up(trace)
    for rank in (0, 2):
        rows = waits(trace, rank, "waiting for a slow stage")
        assert waited_for(rows) == 1
        assert rows["microbatch"].is_not_null().all()
        assert any("in this step rank 1 works longest" in sentence for sentence in rows["sentence"])
    on_path = analysis.critical_path(trace).group_by("rank").agg(pl.col("duration_ns").sum())
    assert on_path.top_k(1, by="duration_ns")["rank"].to_list() == [1]


@pytest.mark.parametrize(
    ("plan", "cause", "at_least_ns", "words"),
    [
        (
            Plan(dp=2, width=128, link="latency=1ms,bandwidth=2MB/s"),
            "bandwidth-bound sync",
            80e6,
            "both ranks had come",
        ),
        (
            Plan(pp=2, microbatches=4, pace="forward=10ms,backward=20ms", link="latency=20ms,bandwidth=10MB/s"),
            "late p2p",
            18e6,
            "both were ready, 2 KiB on the way",
        ),
    ],
    ids=["bandwidth", "late p2p"],
)
def test_a_slow_link_is_what_ranks_wait_for(plan, cause, at_least_ns, words):
    """167 KiB twice round at 2 MB/s are 85 ms; a message of 2 KiB takes the latency of 20 ms."""
    trace = labkit.run(plan)
    check_adds_up(trace)
    for rank in (0, 1):
        told = waits(trace, rank, cause).filter(pl.col("sentence").str.contains(words, literal=True))
        assert told["duration_ns"].max() > at_least_ns


def test_between_its_pieces_of_work_one_rank_waits_for_nobody():
    trace = labkit.run(Plan(layers=2, microbatches=8))
    check_adds_up(trace)
    assert set(explain.summary(trace)["cause"]) == {"host/launch overhead"}


def test_ranks_without_a_core_are_told_so():
    """More ranks than cores, all computing: between their work they mostly wait for a core."""
    trace = labkit.run(Plan(dp=8, layers=4, width=512, global_batch=512, steps=3))
    check_adds_up(trace)
    if trace.meta.num_cores >= 8:
        assert "more ranks than cores" not in set(explain.summary(trace)["cause"])
        return
    assert any("ranks shared" in note for note in trace.meta.notes)
    rows = explain.explain(trace).filter(pl.col("cause") == "more ranks than cores")
    assert rows.height > 0
    assert all(f"than the machine's {trace.meta.num_cores} cores" in sentence for sentence in rows["sentence"])
