"""How long from the call to training, and how much memory a rank takes, beside torchrun and mp.spawn. `make bench`.

All run the same plan with the same code in the ranks. With the peers a rank is a new Python that imports torch; ours
are forked from a server that has. The end is the same event in all: the first optimizer step, on the slowest rank.
"""

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
from figures import ratio_of, spread_of

import labkit
from labkit.event import FIELDS, KINDS, Kind
from labkit.lab import trace_of
from labkit.launch import POOL
from labkit.part import Part, RankFile, decode_part
from labkit.plan import Plan

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

TORCHRUN = Path(sys.executable).with_name("torchrun")
WARM = 9  # runs of ours beside one of a peer, which takes a hundred times as long
PLANS = {
    "DDP": lambda ranks: Plan(dp=ranks, steps=3),
    "FSDP2": lambda ranks: Plan(dp=ranks, zero=3, steps=3),
    "TP": lambda ranks: Plan(tp=ranks, steps=3),
    "PP": lambda ranks: Plan(pp=ranks, layers=ranks, microbatches=2 * ranks, steps=3),
}
GOALS = {"DDP": 100, "FSDP2": 100, "TP": 20, "PP": 20}

SPAWN = """
import os, sys
from labkit.engine import worker

def live(rank, num_ranks, port, plan, out):
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in where.items()}
    sys.argv = ["worker", "--plan", plan, "--out", out]
    worker.main()

if __name__ == "__main__":
    import torch.multiprocessing
    plan, out, num_ranks, port = sys.argv[1:]
    torch.multiprocessing.spawn(live, (int(num_ranks), port, plan, out), nprocs=int(num_ranks))
"""
COLD = """
import sys, time
import labkit
trace = labkit.run(labkit.Plan.load(sys.argv[1]))
print("IN HAND", time.monotonic_ns())
"""


def first_optimizer_ns(parts: Iterable[Part]) -> int:
    """When the last rank had done its first optimizer step, on this machine's monotonic clock."""
    kind, step, end = (FIELDS.index(name) for name in ("kind", "step", "end_ns"))
    rows = np.concatenate([np.frombuffer(part.rows, np.int64).reshape(-1, len(FIELDS)) for part in parts if part.rows])
    return int(rows[(rows[:, kind] == KINDS.index(Kind.OPTIMIZER)) & (rows[:, step] == 0), end].max())


def peer_command(peer: str, plan: Plan, folder: Path) -> list[str]:
    """Runs the plan's ranks, which leave their files in `folder`."""
    (folder / "plan.json").write_text(plan.to_json())
    where = ["--plan", str(folder / "plan.json"), "--out", str(folder)]
    if peer == "torchrun":
        begin = [str(TORCHRUN), "--standalone", f"--nproc-per-node={plan.num_ranks}"]
        return [*begin, "-m", "labkit.engine.worker", *where]
    from labkit.serve import _free_port

    (folder / "spawn.py").write_text(SPAWN)
    return [sys.executable, str(folder / "spawn.py"), where[1], where[3], str(plan.num_ranks), str(_free_port())]


def peer_seconds(peer: str, plan: Plan, folder: Path) -> tuple[float, float]:
    """From the command to the first optimizer step, and to its end."""
    start_ns = time.monotonic_ns()
    done = subprocess.run(
        peer_command(peer, plan, folder), capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    end_ns = time.monotonic_ns()
    files = [msgspec.msgpack.decode(path.read_bytes(), type=RankFile) for path in folder.glob("rank*.labkit")]
    assert len(files) == plan.num_ranks
    first_ns = first_optimizer_ns(decode_part(part) for file in files for part in file.parts)
    return (first_ns - start_ns) / 1e9, (end_ns - start_ns) / 1e9


def own_seconds(plan: Plan) -> tuple[float, float]:
    """What `labkit.run` does: from the call to the first optimizer step, and to the Trace in hand."""
    start_ns = time.monotonic_ns()
    results = POOL.run(plan)
    trace = trace_of(plan, results, start_ns / 1e9)
    end_ns = time.monotonic_ns()
    assert trace.meta.losses
    return (first_optimizer_ns(results.parts) - start_ns) / 1e9, (end_ns - start_ns) / 1e9


def warm_seconds(plan: Plan) -> tuple[float, float]:
    """Medians of `own_seconds` once the ranks are there."""
    own_seconds(plan)
    return tuple(map(statistics.median, zip(*(own_seconds(plan) for _ in range(WARM)), strict=True)))


CASES = [("DDP", 2, 2), ("FSDP2", 2, 1), ("TP", 2, 1), ("PP", 2, 1), *((name, 4, 2) for name in PLANS), ("DDP", 8, 1)]
"""Plan, ranks, rounds: few, since torchrun takes ten seconds and more, half a minute with 8 ranks."""


@pytest.mark.parametrize(("name", "ranks", "rounds"), CASES)
def test_warm_run(name, ranks, rounds, figure, tmp_path):
    """In turn, so that the machine's mood is the same."""
    plan, goal = PLANS[name](ranks), GOALS[name]
    firsts, wholes = {"torchrun": [], "mp.spawn": []}, []
    for number in range(rounds):
        for peer, pairs in firsts.items():
            folder = tmp_path / f"{peer}{number}"
            folder.mkdir()
            peer_s, _ = peer_seconds(peer, plan, folder)
            own_s, whole_s = warm_seconds(plan)
            pairs.append((peer_s, own_s))
            wholes.append(whole_s)
    ours = statistics.median(own_s for pairs in firsts.values() for _, own_s in pairs)
    ratio, spread = ratio_of(firsts["torchrun"])
    spawn, _ = ratio_of(firsts["mp.spawn"])
    seconds = {peer: statistics.median(peer_s for peer_s, _ in pairs) for peer, pairs in firsts.items()}
    figure(
        f"{name}, {ranks} ranks: warm call to first optimizer step",
        ours=f"{ours * 1e3:.0f} ms", peer=", ".join(f"{peer} {value:.1f} s" for peer, value in seconds.items()),
        ratio=f"{ratio:.0f} x torchrun, {spawn:.0f} x mp.spawn", spread=spread, goal=f"{goal} x torchrun",
    )  # fmt: skip
    figure(
        f"{name}, {ranks} ranks: warm re-run of 3 steps to the trace in hand",
        ours=f"{statistics.median(wholes) * 1e3:.0f} ms", spread=spread_of([1e3 * whole for whole in wholes], "ms"),
        goal={2: "-", 4: "200 ms", 8: "- (one kind of plan with 8 ranks)"}[ranks],
    )  # fmt: skip


@pytest.mark.parametrize("name", ["DDP"])
def test_cold_run(name, figure, tmp_path):
    plan, rounds = PLANS[name](4), 2
    pairs = {"torchrun": [], "mp.spawn": []}
    for number in range(rounds):
        for peer, found in pairs.items():
            folder = tmp_path / f"{peer}{number}"
            folder.mkdir()
            _, peer_s = peer_seconds(peer, plan, folder)
            found.append((peer_s, cold_seconds(folder / "plan.json")))
    ratio, spread = ratio_of(pairs["torchrun"])
    spawn, _ = ratio_of(pairs["mp.spawn"])
    seconds = {peer: statistics.median(peer_s for peer_s, _ in found) for peer, found in pairs.items()}
    ours = statistics.median(own_s for found in pairs.values() for _, own_s in found)
    figure(
        f"{name}, 4 ranks, cold: new process to the trace in hand",
        ours=f"{ours:.1f} s", peer=", ".join(f"{peer} {value:.1f} s" for peer, value in seconds.items()),
        ratio=f"{ratio:.1f} x torchrun, {spawn:.1f} x mp.spawn", spread=spread, goal="3 x",
    )  # fmt: skip


def cold_seconds(plan: Path) -> float:
    """From the start of a Python process to its first trace."""
    start_ns = time.monotonic_ns()
    done = subprocess.run([sys.executable, "-c", COLD, str(plan)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (int(done.stdout.partition("IN HAND")[2]) - start_ns) / 1e9


@pytest.mark.parametrize("name", PLANS)
def test_memory_of_a_rank(name, figure, tmp_path):
    """Pages that no other process shares (USS), the most that any rank had while it trained for a while."""
    plan = Plan.from_dict(PLANS[name](4).to_dict() | {"steps": 300})
    torchrun = subprocess.Popen(
        peer_command("torchrun", plan, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    peer = most_private(lambda: children_of(torchrun.pid), until=lambda: torchrun.poll() is not None)
    assert torchrun.returncode == 0
    labkit.run(plan)
    pids = [rank.process.pid for rank in POOL._ranks[:4]]
    worker = threading.Thread(target=labkit.run, args=(plan,))
    worker.start()
    ours = most_private(lambda: pids, until=lambda: not worker.is_alive())
    worker.join()
    figure(
        f"{name}: private memory of a rank (USS, 4 ranks)", ours=f"{ours / 2**20:.0f} MiB",
        peer=f"torchrun {peer / 2**20:.0f} MiB", ratio=f"1/{peer / ours:.1f}", goal="1/5",
    )  # fmt: skip


def children_of(pid: int) -> list[int]:
    """torchrun's ranks."""
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.NoSuchProcess:
        return []


def most_private(pids: Callable[[], Sequence[int]], until: Callable[[], bool]) -> int:
    """Most bytes that any of these processes had to itself until it is over."""
    most = 0
    while not until():
        for pid in pids():
            try:
                most = max(most, psutil.Process(pid).memory_full_info().uss)
            except psutil.Error:  # it has just ended
                continue
        time.sleep(0.1)
    return most
