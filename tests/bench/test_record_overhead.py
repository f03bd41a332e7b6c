"""What `labkit.record` costs: the same loop with and without it, in turn, in one process. `make bench`."""

import statistics
import time

import pytest
import torch
from torch import nn

import labkit

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

ROUNDS, STEPS, BATCH = 7, 30, 64


def seconds(model: nn.Sequential, width: int) -> float:
    """CPU seconds of a step."""
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.01), torch.ones(BATCH, width)
    start = time.process_time()
    for _ in range(STEPS):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.process_time() - start) / STEPS


@pytest.mark.parametrize("width", [256, 1024])
def test_a_loop_with_and_without(width, tmp_path, capsys):
    model, pairs = nn.Sequential(*(nn.Linear(width, width) for _ in range(8))), []
    seconds(model, width)
    for i in range(ROUNDS):
        off = seconds(model, width)
        with labkit.record(tmp_path / str(i)):
            pairs.append((off, seconds(model, width)))
    ratio = statistics.median(on / off for off, on in pairs)
    off, on = (1e3 * min(column) for column in zip(*pairs, strict=True))
    with capsys.disabled():
        print(
            f"\n| 8 layers of {width}, {BATCH} samples | off {off:.2f} ms | on {on:.2f} ms | median ratio {ratio:.3f} |"
        )
