"""Many runs of many kinds in one process: nothing grows, nothing stays behind. `make soak`."""

import gc
import random

import psutil
import pytest

from labkit.lab import run
from labkit.launch import POOL
from labkit.plan import Plan
from labkit.schedule import SCHEDULES

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

RUNS = 300


def any_plan(chance: random.Random) -> Plan:
    kind = chance.choice(["dp", "zero", "tp", "pp", "mixed"])
    common = {"layers": 8, "width": 32, "steps": 2, "global_batch": 32, "seed": chance.randrange(100)}
    if kind == "dp":
        return Plan(dp=chance.choice([2, 4]), microbatches=chance.choice([1, 2]), **common)
    if kind == "zero":
        return Plan(dp=2, zero=chance.choice([1, 2, 3]), **common)
    if kind == "tp":
        return Plan(tp=chance.choice([2, 4]), **common)
    if kind == "pp":
        return Plan(pp=chance.choice([2, 4]), schedule=chance.choice(list(SCHEDULES)), **common)
    return Plan(pp=2, dp=2, schedule=chance.choice(["1f1b", "zbv"]), **common)


def rank_memory() -> int:
    return max(psutil.Process(rank.process.pid).memory_full_info().uss for rank in POOL._ranks)


def test_nothing_grows():
    chance = random.Random(1)
    for _ in range(RUNS // 3):
        run(any_plan(chance))
    gc.collect()
    here = psutil.Process()
    before = here.memory_info().rss, here.num_fds(), here.num_threads(), rank_memory()
    for _ in range(RUNS - RUNS // 3):
        assert run(any_plan(chance)).meta.losses
    gc.collect()
    after = here.memory_info().rss, here.num_fds(), here.num_threads(), rank_memory()
    print("rss, descriptors, threads, private memory of a rank before and after:", before, after)
    assert after[1:3] == before[1:3]
    assert after[0] < 1.05 * before[0]
    assert after[3] < 80 * 2**20
