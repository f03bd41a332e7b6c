"""What recording costs: steps with it on and off, and under torch.profiler, in turn. `make bench`.

Two ranks on two cores, this machine's own speed. A step under the profiler counts its stop and its export too, spread
over the steps, as recording's own end is part of the last step.
"""

import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from figures import ratio_of

import labkit
from labkit.launch import POOL
from labkit.plan import Plan

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1500)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import the tests

STEPS, ROUNDS = 20, 7
SIZES = {  # about 2, 10 and 50 ms a step here
    "2 ms": {"layers": 4, "width": 64, "global_batch": 64},
    "10 ms": {"layers": 4, "width": 256, "global_batch": 512},
    "50 ms": {"layers": 8, "width": 512, "global_batch": 512},
}
PLANS = {
    "DDP": ({"dp": 2}, 1.03),
    "TP": ({"tp": 2}, 1.05),
    "PP": ({"pp": 2, "microbatches": 4}, 1.03),
    "FSDP2": ({"dp": 2, "zero": 3}, 1.05),
}


class Profiled:
    """A batch function that profiles the steps it is called for, and writes the profile at the last one."""

    def __init__(self, batch: Callable, folder: str, steps: int, detailed: bool) -> None:
        self._batch, self._folder, self._steps, self._detailed = batch, folder, steps, detailed
        self._calls = 0

    def __call__(self, samples: np.ndarray):
        import os

        import torch

        if self._calls == 1:
            options = {"record_shapes": True, "with_stack": True} if self._detailed else {}
            self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)
            self._profile.start()
        if self._calls == self._steps:
            self._profile.stop()
            self._profile.export_chrome_trace(f"{self._folder}/{os.getpid()}.json")
        self._calls += 1
        return self._batch(samples)


def profiled_task(plan: Plan, folder: Path, detailed: bool):
    from labkit.engine.tasks import task_of

    task = task_of(replace(plan, task="digits"))
    return replace(task, batch=Profiled(task.batch, str(folder), plan.steps - 1, detailed))


def step_ms(plan: Plan, task=None) -> float:
    """Mean of all steps after the first two on the slowest rank, so that what comes at the end is in it."""
    results = POOL.run(plan, task=None if task is None else cloudpickle.dumps(task))
    return 1e3 * max(statistics.fmean(outcome.step_seconds[2:]) for outcome in results.outcomes)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PLANS)
def test_step_time_with_recording(name, size, figure, tmp_path):
    fields, goal = PLANS[name]
    off = Plan(**fields, **SIZES[size], steps=STEPS, record=())
    on = replace(off, record=("compute", "sync"))
    own = replace(off, task="own", steps=STEPS)
    profilers = {"torch.profiler": False}
    if size == "10 ms":
        profilers["with shapes and stack"] = True
    rounds = []
    for number in range(ROUNDS + 1):
        peers = []
        for peer, detailed in profilers.items():
            folder = tmp_path / f"{number}{peer}"
            folder.mkdir()
            peers.append(step_ms(own, profiled_task(own, folder, detailed)))
        rounds.append((step_ms(off), step_ms(on), *peers))
    rounds = rounds[1:]  # the first warms up
    ours, spread = ratio_of([(each[1], each[0]) for each in rounds])
    ratios = [ratio_of([(each[2 + i], each[0]) for each in rounds])[0] for i in range(len(profilers))]
    peers = ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in zip(profilers, ratios, strict=True))
    figure(
        f"{name}, step of {size}: recording on / off ({statistics.median(r[0] for r in rounds):.1f} ms off)",
        ours=f"{ours:.3f}", peer=peers, ratio=f"{(ratios[0] - 1) / max(ours - 1, 1e-3):.0f} x less", spread=spread,
        goal=f"{goal} at 10 ms, below the profiler",
    )  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_bytes_of_a_trace(name, figure, tmp_path):
    plan = Plan(**PLANS[name][0], layers=4, steps=STEPS)
    path = labkit.run(plan).save(tmp_path / "trace.parquet")
    own = replace(plan, task="own", record=())
    labkit.run(own, task=profiled_task(own, tmp_path, detailed=False))
    ours = path.stat().st_size / STEPS
    peer = sum(file.stat().st_size for file in tmp_path.glob("*.json")) / (STEPS - 2)
    figure(
        f"{name}: bytes of the trace, a step, both ranks", ours=f"{ours:,.0f}", peer=f"torch.profiler {peer:,.0f}",
        ratio=f"1/{peer / ours:.0f}", goal="1/20",
    )  # fmt: skip
