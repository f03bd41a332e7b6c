"""Training as people write it: torchrun --nproc-per-node=2 more.py OUT KIND records it into OUT/KIND."""

import itertools
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import labkit


def mlp(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes)))


def zero1() -> None:
    net = DistributedDataParallel(mlp(8, 8, 4))
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    for _ in range(2):
        net(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def no_sync() -> None:
    net = DistributedDataParallel(mlp(8, 8, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(3):
        for i in range(3):
            with nullcontext() if i == 2 else net.no_sync():
                net(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def two_models() -> None:
    make, judge = (DistributedDataParallel(mlp(*sizes)) for sizes in ((4, 8), (8, 1)))
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (make, judge)]
    for _ in range(2):
        judge(make(torch.ones(4, 4)).detach()).mean().backward()
        optimizers[1].step()
        (-judge(make(torch.ones(4, 4))).mean()).backward()
        optimizers[0].step()
        for optimizer in optimizers:
            optimizer.zero_grad()


def mesh2d() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    net = mlp(8, 8, 8)
    parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(net, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, foreach=False)
    for _ in range(2):
        net(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


KINDS = {"zero1": zero1, "no_sync": no_sync, "two_models": two_models, "mesh2d": mesh2d}

OUT, KIND = sys.argv[1:]
with labkit.record(Path(OUT) / KIND, **({"dp": 2, "tp": 2} if KIND == "mesh2d" else {})):
    dist.init_process_group("gloo")
    KINDS[KIND]()
    dist.destroy_process_group()
