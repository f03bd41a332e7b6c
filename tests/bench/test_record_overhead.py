"""What `labkit.record` costs: the same loop with and without it, in turn, in one process. `make bench`.

Processor time, which other programs disturb less; threads of gloo count. An event costs what many of them cost more,
in a loop of almost nothing else: layers of four weights a side, and all-reduces of a group of one rank, whose messages
are never on a wire.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from figures import ratio_of
from torch import nn

import labkit
from labkit.rank_files import merge_folder

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

ROUNDS, STEPS, BATCH = 9, 20, 64


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as ranks have
    yield
    torch.set_num_threads(before)


def train(model: nn.Sequential, width: int, steps: int) -> None:
    optimizer, x = torch.optim.SGD(model[0].parameters(), lr=0.01), torch.ones(BATCH, width)
    for _ in range(steps):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def all_reduces(number: int, asynchronous: bool) -> None:
    x = torch.ones(64)
    for _ in range(number):
        work = dist.all_reduce(x, async_op=asynchronous)
        if asynchronous:
            work.wait()


def cpu_seconds(do: Callable[[], None]) -> float:
    start = time.process_time()
    do()
    return time.process_time() - start


def on_and_off(do: Callable[[], None], folder: Path, *, group: bool = False) -> list[tuple[float, float]]:
    """CPU seconds with and without recording, in turn; the start of a block and what it writes are left out."""

    def measured() -> float:
        if group:
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        do()  # warms up
        seconds = cpu_seconds(do)
        if group:
            dist.destroy_process_group()
        return seconds

    pairs = []
    for i in range(ROUNDS):
        off = measured()
        with labkit.record(folder / str(i)):
            pairs.append((measured(), off))
    return pairs


def events_of(folder: Path, *kinds: str) -> int:
    """Events of these kinds in what one call of the loop leaves (the block calls it twice)."""
    events = merge_folder(folder / "0").events
    return events.filter(events["kind"].cast(str).is_in(kinds)).height // 2


def each_us(pairs: list[tuple[float, float]], number: int) -> tuple[float, str]:
    """What one event costs: the median of the rounds, and least to greatest."""
    found = sorted(1e6 * (on - off) / number for on, off in pairs)
    return statistics.median(found), f"{found[0]:.1f} to {found[-1]:.1f} us in {len(found)} rounds"


@pytest.mark.parametrize("width", [256, 1024])
def test_a_loop_with_and_without(width, figure, tmp_path):
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(8)))
    pairs = on_and_off(lambda: train(model, width, STEPS if width < 1024 else 5), tmp_path)
    ratio, spread = ratio_of(pairs)
    on, off = (1e3 * min(column) for column in zip(*pairs, strict=True))
    figure(
        f"labkit.record around a loop, 8 layers of {width}, {BATCH} samples: on / off", ours=f"{on:.0f} ms",
        peer=f"off {off:.0f} ms", ratio=f"{ratio:.3f}", spread=spread, goal="1.05 at 10 ms a step",
    )  # fmt: skip


def test_cost_of_a_span(figure, tmp_path):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(200)))
    pairs = on_and_off(lambda: train(model, 4, 3), tmp_path)
    number = events_of(tmp_path, "forward", "backward")
    assert number == 2 * 200 * 3
    cost_us, spread = each_us(pairs, number)
    figure("one span (a layer's forward or backward)", ours=f"{cost_us:.1f} us", spread=spread, goal="3 us")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_cost_of_a_collective(asynchronous, figure, tmp_path):
    pairs = on_and_off(lambda: all_reduces(500, asynchronous), tmp_path, group=True)
    cost_us, spread = each_us(pairs, 500)
    how = "async_op=True, wait" if asynchronous else "waited for at once"
    figure(f"one all-reduce ({how}): its sync and its wait", ours=f"{cost_us:.1f} us", spread=spread, goal="15 us")
