"""A Plan beside the same training written by hand for torchrun (scripts/plain.py), in turn. `make bench`."""

import os
import re
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from figures import ratio_of

from labkit.launch import POOL
from labkit.plan import Plan

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("scripts") / "plain.py"
TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node=2"]

STEPS, ROUNDS = 60, 5
LAYERS, WIDTH, GLOBAL_BATCH = 4, 512, 512  # about 10 ms a step
PLANS = {
    "DDP": {"dp": 2},
    "TP": {"tp": 2},
    "PP": {"pp": 2, "microbatches": 4},
    "FSDP2": {"dp": 2, "zero": 3},
}


def plain_ms(kind: str) -> float:
    """Mean step of the script on its slower rank."""
    sizes = [str(number) for number in (LAYERS, WIDTH, GLOBAL_BATCH, STEPS)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*TORCHRUN, str(SCRIPT), kind, *sizes], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    found = re.findall(r"step_ms (\S+)", done.stdout)
    assert len(found) == 2, done.stderr
    return max(map(float, found))


def plan_ms(plan: Plan) -> float:
    return 1e3 * max(statistics.fmean(outcome.step_seconds[2:]) for outcome in POOL.run(plan).outcomes)


@pytest.mark.parametrize("kind", PLANS)
def test_throughput_of_a_plan(kind, figure):
    on = Plan(
        **PLANS[kind], layers=LAYERS, width=WIDTH, global_batch=GLOBAL_BATCH, steps=STEPS, lr=0.1,
        record=("compute", "sync"),
    )  # fmt: skip
    off = replace(on, record=())
    plan_ms(off)  # starts the ranks
    rounds = [(plain_ms(kind), plan_ms(off), plan_ms(on)) for _ in range(ROUNDS)]
    for name, place in (("not recorded", 1), ("recorded", 2)):
        ratio, spread = ratio_of([(each[0], each[place]) for each in rounds])
        figure(
            f"{kind}: training throughput of a Plan, {name}, and of a script by hand",
            ours=f"{statistics.median(each[place] for each in rounds):.1f} ms a step",
            peer=f"torchrun {statistics.median(each[0] for each in rounds):.1f} ms", ratio=f"{ratio:.3f}",
            spread=spread, goal=">= 0.98",
        )  # fmt: skip
