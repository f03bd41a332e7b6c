"""Any plan and any mutated file: checked and consistent, or refused in words; none takes long, memory stays bounded.

A part of either is one seed's worth; parts run in processes of their own (`in_parts`), so that one that hangs or dies
is seen from outside.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from labkit import schedule
from labkit.costs import task_memory
from labkit.mesh import AXES
from labkit.plan import Plan, PlanError
from labkit.schedule import SCHEDULES

PART = 1000
PART_S = 300
"""No part of so many takes longer, by far: else it hangs."""


@dataclass
class Counts:
    """Of plans or of files. `wrong`: errors that no reader documents, or plans at odds with themselves."""

    num: int = 0
    refused: int = 0
    longest_s: float = 0.0
    grown_bytes: int = 0
    """Most that one part's process grew, from its first tenth on."""
    hung: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Counts) -> None:
        self.num, self.refused, self.hung = self.num + other.num, self.refused + other.refused, self.hung + other.hung
        self.longest_s = max(self.longest_s, other.longest_s)
        self.grown_bytes = max(self.grown_bytes, other.grown_bytes)
        self.wrong += other.wrong


def in_parts(part: Callable[[int, int], Counts], num: int, seed: int, at_once: int = 2) -> Counts:
    """`part(how many, seed)` over and over in `at_once` processes until `num` are done."""
    began, total = time.monotonic(), Counts()
    sizes = [PART] * (num // PART) + ([num % PART] if num % PART else [])
    with multiprocessing.get_context("spawn").Pool(at_once, maxtasksperchild=10) as pool:
        asked = [(size, pool.apply_async(part, (size, 1000 * seed + number))) for number, size in enumerate(sizes)]
        deadline = time.monotonic() + PART_S
        for number, (size, answer) in enumerate(asked):
            try:
                total.add(answer.get(max(1.0, deadline - time.monotonic())))
                deadline = time.monotonic() + PART_S
            except multiprocessing.TimeoutError:
                total.add(Counts(size, hung=1, wrong=[f"{part.__name__}({size}, {1000 * seed + number}) did not end"]))
        pool.terminate()  # the one that hangs too
    total.seconds = time.monotonic() - began
    return total


def _part(num: int, one: Callable[[], bool]) -> Counts:
    """So many times `one`, which says whether its input was refused."""
    counts, before = Counts(num), 0
    for number in range(num):
        if number == num // 10:
            before = psutil.Process().memory_info().rss
        began = time.monotonic()
        try:
            counts.refused += one()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            counts.wrong.append(f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"[:300])
        counts.longest_s = max(counts.longest_s, time.monotonic() - began)
    counts.grown_bytes = psutil.Process().memory_info().rss - before
    return counts


# ---- plans


def plans(num: int, seed: int) -> Counts:
    """So many plans: half of them of anything, half nearly legal."""
    chance = random.Random(seed)
    return _part(num, lambda: _plan(chance))


def _plan(chance: random.Random) -> bool:
    values = _anything(chance) if chance.random() < 0.5 else _nearly_legal(chance)
    try:
        plan = Plan(**values)
    except PlanError as error:
        assert len(str(error)) > 20, f"{values}: refused without a word: {error}"
        return True
    try:
        check(plan)
    except Exception as error:
        raise AssertionError(f"{plan}: {type(error).__name__}: {error}") from error
    return False


def _anything(chance: random.Random) -> dict[str, Any]:
    one = chance.choice
    values = {
        "dp": one([1, 2, 3, 4]), "tp": one([1, 2, 3, 4]), "pp": one([1, 2, 3, 4]), "zero": one([0, 0, 1, 2, 3]),
        "layers": chance.randint(1, 64), "global_batch": chance.randint(1, 64),
        "task": one(["digits", "chars", "digits_cnn"]), "max_ranks": 64,
    }  # fmt: skip
    more = {
        "schedule": one(list(SCHEDULES)), "microbatches": chance.randint(-1, 16), "virtual": chance.randint(1, 3),
        "sequence_parallel": one([True, False]), "recompute": one([True, False]), "offload": one([True, False]),
        "optimizer": one(["sgd", "adam"]), "width": chance.randint(1, 200), "heads": one([1, 2, 4, 8]),
        "grad_sync": one(["engine", "naive", "ring", "tree", "gather", "off"]), "tensor": one(["dtensor", "by_hand"]),
        "pace": one(["forward=1ms", "forward=1ms,backward=2ms", "backward", "", 5]), "link": one(["eth10", "none", {}]),
        "slow": one(["1=1.5", {0: 2.0}, "x"]), "dtype": one(["float32", "float64", "bfloat16", "int8"]),
        "lr": one([0.1, 0.0, -1.0, float("nan"), "fast"]), "split": one([(1, 1), (2, 3, 4), "all"]),
        "order": one(["0F0,0B0", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "0F0,", "?"]),
        "record": one([(), ("sync",), ("memory",), ("everything",)]), "seed": one([0, 2**50, -1]),
    }  # fmt: skip
    return values | {name: more[name] for name in chance.sample(list(more), chance.randint(0, 4))}


def _nearly_legal(chance: random.Random) -> dict[str, Any]:
    one = chance.choice
    dp, tp, pp, virtual = one([1, 2, 4]), one([1, 1, 2, 4]), one([1, 2, 4, 8]), one([1, 1, 2])
    microbatches = one([1, 2, 4, 8, 16])
    values = {
        "dp": dp, "tp": tp, "pp": pp, "layers": pp * virtual * chance.randint(1, 3), "max_ranks": 128,
        "microbatches": microbatches, "global_batch": dp * microbatches * chance.randint(1, 3),
        "task": one(["digits", "digits", "chars"]), "optimizer": one(["sgd", "adam"]),
        "zero": one([0, 0, 0, 1, 2, 3]) if dp > 1 else 0, "recompute": chance.random() < 0.2,
    }  # fmt: skip
    return values | ({"schedule": one(list(SCHEDULES)), "virtual": virtual} if pp > 1 else {})


def check(plan: Plan) -> None:
    """A legal plan agrees with itself: mesh, layers, samples, schedule, memory and its own text."""
    ranks = list(range(plan.dp * plan.tp * plan.pp))
    for axis in AXES:
        groups = plan.mesh.groups(axis)
        assert sorted(rank for group in groups for rank in group) == ranks, axis
        assert {len(group) for group in groups} == {getattr(plan, axis)}, axis
    assert sum(plan.layers_of_stage) == plan.layers and min(plan.layers_of_stage) > 0
    assert plan.dp * plan.microbatches * (plan.replica_batch // plan.microbatches) == plan.global_batch
    assert Plan.from_json(plan.to_json()) == plan
    if plan.pipeline is not None:
        schedule.check(plan.pipeline)
        slots = schedule.simulate(plan.pipeline, schedule.Durations(forward=1.5))
        assert 0 <= schedule.bubble_fraction(slots) < 1
        assert len(plan.pipeline.orders) == plan.pp
    memory = task_memory(plan)
    assert len(memory) == plan.num_ranks
    assert all(one.param_bytes > 0 and one.activation_bytes > 0 and one.optimizer_bytes >= 0 for one in memory)


# ---- files


def files(num: int, seed: int) -> Counts:
    """So many mutated files, of every kind in turn that is read."""
    import test_mutated_files as mutating

    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        readers = [(reader, Path(folder) / f"{place}" / reader.name) for place, reader in enumerate(mutating.READERS)]
        whole = {}
        for reader, path in readers:
            path.parent.mkdir()
            reader.write(path)
            whole[path] = path.read_bytes()

        def one() -> bool:
            reader, path = readers[chance.randrange(len(readers))]
            changes = [_change(chance, mutating) for _ in range(chance.randint(1, 3))]
            path.write_bytes(mutating.mutated(whole[path], changes))
            try:
                reader.read(path)
            except reader.errors as error:
                assert len(str(error)) > 15, f"{reader.name}: {changes}: refused without a word: {error}"
                return True
            except Exception as error:
                raise RuntimeError(f"{reader.name}: {changes}: {type(error).__name__}: {error}") from error
            return False

        return _part(num, one)


def _change(chance: random.Random, mutating: Any) -> tuple[str, float, int, bytes]:
    new = chance.randbytes(chance.randint(1, 8)) if chance.random() < 0.5 else chance.choice(mutating.WORDS)
    return chance.choice(mutating.HOW), chance.random(), chance.randint(1, 64), new
