"""How long until a run's trace is in hand, beside the same training under torchrun. `make bench`."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import labkit
from labkit.launch import POOL
from labkit.plan import Plan

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

TORCHRUN = Path(sys.executable).with_name("torchrun")
ROUNDS = 3
PLANS = {
    "DDP": Plan(dp=4, steps=3),
    "FSDP2": Plan(dp=4, zero=3, steps=3),
    "TP": Plan(tp=4, steps=3),
    "PP": Plan(pp=4, layers=4, microbatches=8, steps=3),
}


def torchrun_seconds(plan: Plan, folder: Path) -> float:
    (folder / "plan.json").write_text(plan.to_json())
    command = [TORCHRUN, "--standalone", f"--nproc-per-node={plan.num_ranks}", "-m", "labkit.engine.worker"]
    start = time.monotonic()
    done = subprocess.run(
        [*command, "--plan", folder / "plan.json", "--out", folder / "out"],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return time.monotonic() - start


def warm_seconds(plan: Plan) -> float:
    labkit.run(plan)
    times = []
    for _ in range(7):
        start = time.monotonic()
        labkit.run(plan)
        times.append(time.monotonic() - start)
    return statistics.median(times)


@pytest.mark.parametrize("name", PLANS)
def test_warm_run_against_torchrun(name, tmp_path, capsys):
    """The two in turn, so that the machine's mood is the same; the ratio of medians is what counts."""
    plan = PLANS[name]
    pairs = [(torchrun_seconds(plan, tmp_path), warm_seconds(plan)) for _ in range(ROUNDS)]
    peer, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    private = max(psutil.Process(rank.process.pid).memory_full_info().uss for rank in POOL._ranks) / 2**20
    with capsys.disabled():
        print(
            f"\n| {name}, 4 ranks, 3 steps | torchrun {peer:.2f} s | warm, until the trace is in hand {ours:.3f} s | "
            f"{peer / ours:.0f} x (of rounds {', '.join(f'{a / b:.0f}' for a, b in pairs)}) | "
            f"private memory of a rank {private:.0f} MiB |"
        )
