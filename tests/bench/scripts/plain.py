"""Training as one writes it by hand, with nothing of the engine: torchrun --nproc-per-node=2 plain.py KIND LAYERS ...

plain.py KIND LAYERS WIDTH GLOBAL_BATCH STEPS: a perceptron on the digit images, as the lab's task of that name. Prints
this rank's mean step in ms, the first two steps left out.
"""

import statistics
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from labkit.digits import digits

KIND = sys.argv[1]
LAYERS, WIDTH, GLOBAL_BATCH, STEPS = map(int, sys.argv[2:])
MICROBATCHES = 4


class Layer(nn.Module):
    def __init__(self, num_in: int, num_out: int, relu: bool) -> None:
        super().__init__()
        self.linear, self.relu = nn.Linear(num_in, num_out), relu

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x)) if self.relu else self.linear(x)


def perceptron() -> nn.Sequential:
    torch.manual_seed(0)
    sizes = [64, *[WIDTH] * (LAYERS - 1), 10]
    return nn.Sequential(*(Layer(sizes[i], sizes[i + 1], i < LAYERS - 1) for i in range(LAYERS)))


def batches(rank: int, num_replicas: int):
    images, labels = map(torch.from_numpy, digits())
    size = GLOBAL_BATCH // num_replicas
    order = np.random.default_rng(0).permutation(np.resize(np.arange(len(images)), GLOBAL_BATCH * STEPS))
    for step in range(STEPS):
        mine = order[step * GLOBAL_BATCH + rank * size :][:size]
        yield images[mine], labels[mine]


def replica(model: nn.Module, rank: int, num_replicas: int) -> list[float]:
    optimizer, seconds = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False), []
    data = batches(rank, num_replicas)
    for _ in range(STEPS):
        start = time.perf_counter()
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        loss.item()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds


def ddp() -> list[float]:
    return replica(DistributedDataParallel(perceptron()), dist.get_rank(), 2)


def fsdp2() -> list[float]:
    model = perceptron()
    for layer in model:
        fully_shard(layer)
    return replica(fully_shard(model), dist.get_rank(), 2)


def tp() -> list[float]:
    model = perceptron()
    styles = {f"{i}.linear": (ColwiseParallel(), RowwiseParallel())[i % 2] for i in range(LAYERS)}
    return replica(parallelize_module(model, init_device_mesh("cpu", (2,)), styles), 0, 1)


def pp() -> list[float]:
    model, rank = perceptron(), dist.get_rank()
    part = model[: LAYERS // 2] if rank == 0 else model[LAYERS // 2 :]
    schedule = Schedule1F1B(PipelineStage(part, rank, 2, torch.device("cpu")), MICROBATCHES, loss_fn=F.cross_entropy)
    optimizer, seconds = torch.optim.SGD(part.parameters(), lr=0.1, foreach=False), []
    data = batches(0, 1)
    for _ in range(STEPS):
        start, losses = time.perf_counter(), []
        x, y = next(data)
        optimizer.zero_grad()
        schedule.step(*([] if rank else [x]), target=y if rank else None, losses=losses if rank else None)
        [loss.item() for loss in losses]
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds


torch.set_num_threads(1)
dist.init_process_group("gloo")
mean_s = statistics.fmean({"DDP": ddp, "FSDP2": fsdp2, "TP": tp, "PP": pp}[KIND]()[2:])
dist.destroy_process_group()
sys.stdout.write(f"step_ms {1e3 * mean_s:.4f}\n")
