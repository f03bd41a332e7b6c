"""A plan applied to a model, with torch's own engines.

In: a task and this rank's place in the mesh. Out: `Stage`s, the runs of layers this rank holds, cut, sharded or
wrapped, and the optimizer over their parameters. Order matters: cut (tensor parallel), then recompute, then share out
over replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from labkit.engine.by_hand import ColumnLinear, RowLinear, share_input
from labkit.engine.tasks import Cut, Task, cuttable_linears
from labkit.mesh import AXES
from labkit.plan import Plan


class Layers(nn.Module):
    """Named layers applied one after the other."""

    def __init__(self, layers: Sequence[tuple[str, nn.Module]]) -> None:
        super().__init__()
        for name, module in layers:
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = layer(x)
        return x


@dataclass(frozen=True)
class Stage:
    """A run of layers on this rank. `module` is what is called; `layers` are (position in the model, layer)."""

    index: int
    module: nn.Module
    layers: list[tuple[int, nn.Module]]


def device_mesh(plan: Plan, device: str) -> DeviceMesh | None:
    """The torch mesh of the axes that have more than one rank; None on a single rank."""
    axes = [axis for axis in AXES if getattr(plan, axis) > 1]
    if not axes:
        return None
    mesh = init_device_mesh(device, [getattr(plan, axis) for axis in axes], mesh_dim_names=axes)
    _forget_other_groups()
    return mesh


_groups: dict[str, list[int]] = {}
"""Name -> ranks of the process groups of this process's last mesh."""


def _forget_other_groups() -> None:
    """Clear what DTensor remembers, unless this mesh's groups are called as the last one's were.

    It remembers by mesh how an operation was cut. Two runs' meshes can be equal while their groups have other names,
    and then it would ask for a group that is gone. To remember matters: working it out anew takes longer than a step.
    """
    global _groups
    groups = {name: dist.get_process_group_ranks(group) for group, name in c10d._world.pg_names.items()}
    if groups != _groups:
        _clear_sharding_prop_cache()
    _groups = groups


def axis_mesh(mesh: DeviceMesh | None, axis: str) -> DeviceMesh | None:
    """The part of the mesh along one axis, or None where that axis has one rank."""
    return mesh[axis] if mesh is not None and axis in mesh.mesh_dim_names else None


def stage_ranges(plan: Plan, task: Task) -> list[range]:
    """Positions of the layers of every stage. Layers before and after the equal ones go with the first and last."""
    extra = len(task.names) - plan.layers
    before = 1 if extra else 0
    ends = [before + sum(plan.layers_of_stage[: i + 1]) for i in range(plan.num_stages)]
    ends[-1] = len(task.names)
    return [range(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def build_stage(plan: Plan, task: Task, index: int, positions: range, mesh: DeviceMesh | None, device: str) -> Stage:
    """Stage `index` as this rank holds it."""
    dtype = getattr(torch, plan.dtype)
    layers = [(position, task.build(position).to(device, dtype)) for position in positions]
    whole = Layers([(task.names[position], layer) for position, layer in layers])
    tp_mesh, dp_mesh = axis_mesh(mesh, "tp"), axis_mesh(mesh, "dp")
    if tp_mesh is not None:
        _cut(plan, task, whole, tp_mesh)
    if plan.recompute:
        _recompute(whole)
    module = _share_out(plan, whole, dp_mesh) if dp_mesh is not None else whole
    return Stage(index, module, layers)


# ---- tensor parallelism


def _cut(plan: Plan, task: Task, whole: Layers, mesh: DeviceMesh) -> None:
    held = [name for name, _ in whole.named_children()]
    # A user's own linear layers are cut by their outputs, which are concatenated: always right, never the fastest.
    cuts = task.cuts(held) if task.cuts else dict.fromkeys(cuttable_linears(whole, plan.tp), "gather")
    if plan.tensor == "by_hand":
        _cut_by_hand(whole, cuts, mesh.get_group())
        return
    styles = {path: _style(cut, plan.sequence_parallel) for path, cut in cuts.items()}
    if plan.sequence_parallel:
        kinds = task.sequence_parallel(held)
        styles |= {path: _sequence_style(kind) for path, kind in kinds.items()}
    if styles:
        parallelize_module(whole, mesh, styles)


def _style(cut: Cut, sequence_parallel: bool) -> ParallelStyle:
    outside = Shard(1) if sequence_parallel else Replicate()  # how activations lie between the cut layers
    match cut:
        case "column":
            return ColwiseParallel(input_layouts=outside)
        case "column_shared":
            return ColwiseParallel()
        case "row":
            return RowwiseParallel(output_layouts=outside)
        case "gather":
            return ColwiseParallel(input_layouts=outside, output_layouts=Replicate())
        case "share":
            return PrepareModuleInput(input_layouts=outside, desired_input_layouts=Replicate(), use_local_output=False)
    raise AssertionError(cut)


def _sequence_style(kind: str) -> ParallelStyle:
    if kind == "norm":
        return SequenceParallel(use_local_output=True)
    return PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1))


def _cut_by_hand(whole: nn.Module, cuts: dict[str, Cut], group: dist.ProcessGroup) -> None:
    for path, cut in cuts.items():
        parent, _, name = path.rpartition(".")
        holder, module = whole.get_submodule(parent), whole.get_submodule(path)
        if cut == "share":
            share_input(module, group)
        elif cut == "row":
            setattr(holder, name, RowLinear(module, group))
        else:
            setattr(holder, name, ColumnLinear(module, group, gather=cut == "gather", copy=cut != "column_shared"))


# ---- recomputation and data parallelism


def _recompute(whole: Layers) -> None:
    for name, layer in list(whole.named_children()):
        # Without early stop the repeated forward runs to its end, so that it can be seen whole.
        setattr(whole, name, checkpoint_wrapper(layer, early_stop=False))


def _share_out(plan: Plan, whole: Layers, mesh: DeviceMesh) -> nn.Module:
    """DDP, FSDP2, or nothing where gradients are averaged by hand."""
    if plan.grad_sync != "engine":
        return whole
    if plan.zero >= 2:
        return _fsdp(plan, whole, mesh)
    if plan.tp * plan.pp == 1:
        return DistributedDataParallel(whole, bucket_cap_mb=plan.bucket_mb)
    return replicate(whole, mesh=mesh)  # the same averaging by FSDP2's machinery: DDP fails on DTensors and stages


def _fsdp(plan: Plan, whole: Layers, mesh: DeviceMesh) -> nn.Module:
    options = {
        "mesh": mesh,
        "reshard_after_forward": plan.zero == 3,
        "offload_policy": CPUOffloadPolicy(pin_memory=False) if plan.offload else OffloadPolicy(),
    }
    for layer in whole.children():
        fully_shard(layer, **options)
    return fully_shard(whole, **options)


# ---- optimizer


def make_optimizer(plan: Plan, stages: Sequence[Stage]) -> torch.optim.Optimizer:
    """The plan's optimizer over all parameters of this rank."""
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[plan.optimizer]
    parameters = [p for stage in stages for p in stage.module.parameters()]
    parameters = parameters or [nn.Parameter(torch.empty(0))]  # a stage may hold only layers without weights
    options = {"lr": plan.lr, "foreach": False}  # cut and whole parameters cannot share one fused update
    if plan.zero == 1:
        return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, **options)
    return kind(parameters, **options)
