"""A user's training script, as people write them: the model knows nothing of labkit.

torchrun --nproc-per-node=2 train.py KIND OUT; the layers are those of the lab's own perceptron on digits, so that
counts and bytes can be compared with the lab's run of the same plan.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import labkit
from labkit.engine.tasks import task_of

KIND, OUT = sys.argv[1:]
PLAN = labkit.Plan(layers=4, global_batch=32)
TASK = task_of(PLAN)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(TASK.build(position) for position in range(len(TASK.names))))


def batch(rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return TASK.batch(torch.arange(rank * size, (rank + 1) * size).numpy())


def replicas(kind: str) -> None:
    whole = model()
    if kind == "ddp":
        net = DistributedDataParallel(whole)
    elif kind == "fsdp2":
        for layer in whole:
            fully_shard(layer)
        net = fully_shard(whole)
    else:
        mesh, net = init_device_mesh("cpu", (2,)), whole
        names = [name for name, part in whole.named_modules() if isinstance(part, nn.Linear)]
        plans = [ColwiseParallel(), RowwiseParallel()]
        parallelize_module(whole, mesh, {name: plans[i % 2] for i, name in enumerate(names)})
    train(net, *((0, 32) if kind == "tp" else (dist.get_rank(), 16)))


def train(net: nn.Module, rank: int, size: int) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        x, y = batch(rank, size)
        optimizer.zero_grad()
        TASK.loss(net(x), y).backward()
        optimizer.step()


def pipeline() -> None:
    layers, rank = model(), dist.get_rank()
    half = len(layers) // 2
    stage = PipelineStage(layers[:half] if rank == 0 else layers[half:], rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=TASK.loss)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
    for _ in range(3):
        x, y = batch(0, 32)
        optimizer.zero_grad()
        schedule.step(*([x] if rank == 0 else []), target=y if rank else None)
        optimizer.step()


with labkit.record(OUT, **({"tp": 2} if KIND == "tp" else {"pp": 2} if KIND == "pipeline" else {})):
    if KIND == "plain":
        train(model(), 0, 32)
    else:
        dist.init_process_group("gloo")
        pipeline() if KIND == "pipeline" else replicas(KIND)
        dist.destroy_process_group()
