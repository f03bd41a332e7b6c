"""The training loop of one rank: load, forward, loss, backward, synchronize, update.

In: a plan, a task, and the tracer that watches. Out: the losses of the microbatches this rank saw the end of.
`Replica` is a model without a pipeline; `Pipeline` hands the order of work to torch's schedule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleSingle,
    _Action,
    _PipelineScheduleRuntime,
    get_schedule_class,
)
from torch.nn.parallel import DistributedDataParallel

from labkit.engine.by_hand import AVERAGES
from labkit.engine.memory import Memory
from labkit.engine.parallelize import axis_mesh, build_stage, make_optimizer, stage_ranges
from labkit.engine.recorder import CODE
from labkit.engine.tasks import Task, sample_order
from labkit.engine.tracer import Tracer
from labkit.engine.wire import Wire
from labkit.event import NONE, Kind
from labkit.plan import Plan
from labkit.schedule import SCHEDULES

_FORWARD, _BACKWARD = CODE[Kind.FORWARD], CODE[Kind.BACKWARD]
_INPUT, _WEIGHT = CODE[Kind.BACKWARD_INPUT], CODE[Kind.BACKWARD_WEIGHT]


class Replica:
    """A whole model on this rank (or its tensor parallel part): microbatches mean gradient accumulation."""

    def __init__(
        self, plan: Plan, task: Task, mesh: DeviceMesh | None, device: str, tracer: Tracer, wire: Wire
    ) -> None:
        self._plan, self._tracer, self._wire = plan, tracer, wire
        (positions,) = stage_ranges(plan, task)
        self.stages = [build_stage(plan, task, 0, positions, mesh, device)]
        self._module = self.stages[0].module
        self._loss = tracer.loss(task.loss)
        dp_mesh = axis_mesh(mesh, "dp")
        by_hand = plan.dp > 1 and plan.grad_sync != "engine"
        self._average = partial(AVERAGES[plan.grad_sync], self._module, dp_mesh.get_group()) if by_hand else None
        tracer.attach(0, self.stages[0].layers)

    def step(self, x: Tensor, y: Tensor) -> list[float]:
        """One batch (b, ...), forward to averaged gradients. Returns the loss of every microbatch."""
        losses = []
        num = self._plan.microbatches
        for microbatch, (x_part, y_part) in enumerate(zip(x.chunk(num), y.chunk(num), strict=True)):
            with self._accumulating(last=microbatch == num - 1):
                with self._tracer.work(_FORWARD, 0, microbatch):
                    output = self._module(x_part)
                loss = self._loss(output, y_part)
                with self._tracer.work(_BACKWARD, 0, microbatch):
                    (loss / num).backward()
                self._wire.wait_for_unfinished()
            losses.append(loss.item())
        if self._average is not None:
            self._average()
        return losses

    @contextlib.contextmanager
    def _accumulating(self, *, last: bool) -> Any:
        """Gradients are synchronized only with the last microbatch."""
        if isinstance(self._module, FSDPModule):
            self._module.set_requires_gradient_sync(last)
            self._module.set_is_last_backward(last)
            yield
        elif isinstance(self._module, DistributedDataParallel) and not last:
            with self._module.no_sync():
                yield
        else:
            yield


class Pipeline:
    """The stages of this rank, driven by torch's schedule."""

    def __init__(self, plan: Plan, task: Task, mesh: DeviceMesh, device: str, tracer: Tracer, wire: Wire) -> None:
        self._plan, self._task, self._tracer, self._wire = plan, task, tracer, wire
        pp_mesh = axis_mesh(mesh, "pp")
        self._rank, group = pp_mesh.get_local_rank(), pp_mesh.get_group()
        ranges = stage_ranges(plan, task)
        shapes = _stage_inputs(plan, task, ranges, device)
        mine = plan.pipeline.stages_of(self._rank)
        self.stages = [build_stage(plan, task, index, ranges[index], mesh, device) for index in mine]
        torch_stages = [
            PipelineStage(
                stage.module, stage.index, plan.num_stages, torch.device(device), group=group,
                input_args=shapes[stage.index], output_args=shapes[stage.index + 1],
            )
            for stage in self.stages
        ]  # fmt: skip
        for stage, torch_stage in zip(self.stages, torch_stages, strict=True):
            tracer.attach(stage.index, stage.layers, splits_backward=plan.splits_backward)
            watch_stage(torch_stage, stage.index, [position for position, _ in stage.layers], tracer, wire)
        self._schedule = _torch_schedule(plan, torch_stages, tracer.loss(task.loss))
        self._single = isinstance(self._schedule, PipelineScheduleSingle)
        self._holds_first, self._holds_last = 0 in mine, plan.num_stages - 1 in mine
        self._agree_on_shapes(torch_stages, shapes[0])

    def _agree_on_shapes(self, torch_stages: list[PipelineStage], x: Tensor) -> None:
        """Have torch's stages vote that all shapes are known, which it else does amid the first step's messages."""
        for torch_stage in torch_stages:
            torch_stage.has_backward = True
        initialize = self._schedule._initialize_stage if self._single else self._schedule._initialize_stages
        initialize((x,) if self._holds_first else (), {})

    def step(self, x: Tensor, y: Tensor) -> list[float]:
        """One batch through the pipeline. Losses come from the rank that holds the last stage."""
        losses: list[Tensor] = []
        self._schedule.step(
            *([x] if self._holds_first else []),
            target=y if self._holds_last else None,
            losses=losses if self._holds_last else None,
            return_outputs=False,
        )
        return [loss.item() for loss in losses]


def _torch_schedule(plan: Plan, stages: list[PipelineStage], loss: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """torch's class for the schedule; where it has none, its runtime, given our order."""
    name = SCHEDULES[plan.schedule].torch_name if plan.order is None else None
    if name is not None:
        kind = get_schedule_class(name)
        stage_or_stages = stages[0] if issubclass(kind, PipelineScheduleSingle) else stages
        return kind(stage_or_stages, plan.microbatches, loss_fn=loss)
    runtime = _PipelineScheduleRuntime(stages, plan.microbatches, loss_fn=loss)
    orders = [[_Action.from_str(str(cell)) for cell in plan.pipeline.cells(rank)] for rank in range(plan.pp)]
    runtime._prepare_schedule_with_comms(dict(enumerate(orders)))
    return runtime


def _stage_inputs(plan: Plan, task: Task, ranges: list[range], device: str) -> list[Tensor]:
    """A tensor like the input of every stage, and like the output of the last: torch then need not ask its neighbours.

    Found by one forward of a microbatch through fresh layers on the meta device, which computes shapes only.
    """
    x, _ = task.batch(sample_order(plan, task, 0)[: plan.replica_batch // plan.microbatches])
    x = _in_dtype(x, plan).to("meta")
    inputs = [x]
    for positions in ranges:
        for position in positions:
            x = task.build(position).to("meta", getattr(torch, plan.dtype))(x)
        inputs.append(x)
    if plan.sequence_parallel:  # between stages each rank holds its slice of the sequence
        inputs[1:-1] = [t[:, : t.shape[1] // plan.tp] for t in inputs[1:-1]]
    like = [torch.empty(t.shape, dtype=t.dtype, device=device) for t in inputs]
    return [t.requires_grad_(t.is_floating_point() and i > 0) for i, t in enumerate(like)]


def watch_stage(
    torch_stage: Any, index: int, layers: list[int], tracer: Tracer, wire: Wire,
    around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> None:  # fmt: skip
    """Wrap the stage's three verbs, so that each call becomes an event, and tag its messages.

    layers: codes of its layers; around: a context that each call is made in.
    """
    forward, backward = torch_stage.forward_one_chunk, torch_stage.backward_one_chunk
    weight = torch_stage.backward_weight_one_chunk

    def forward_one_chunk(microbatch: int, *args: Any, **kwargs: Any) -> Any:
        with around(), tracer.work(_FORWARD, index, microbatch):
            return forward(microbatch, *args, **kwargs)

    def backward_one_chunk(
        microbatch: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> Any:
        with around(), tracer.work(_BACKWARD if full_backward else _INPUT, index, microbatch):
            return backward(microbatch, loss=loss, full_backward=full_backward, last_backward=last_backward)

    def backward_weight_one_chunk(microbatch: int, last_backward: bool = False) -> Any:
        with around(), tracer.work(_WEIGHT, index, microbatch):
            # The first stage needs no gradient of its input: torch leaves its whole backward to the weight half.
            tracer.begin_weights(layers if index else [])
            return weight(microbatch, last_backward=last_backward)

    torch_stage.forward_one_chunk = forward_one_chunk
    torch_stage.backward_one_chunk = backward_one_chunk
    torch_stage.backward_weight_one_chunk = backward_weight_one_chunk
    for name in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
        setattr(torch_stage, name, _tagged(getattr(torch_stage, name), index, wire))


def _tagged(get_ops: Callable[[int], list[Any]], stage: int, wire: Wire) -> Callable[[int], list[Any]]:
    def get(microbatch: int) -> list[Any]:
        ops = get_ops(microbatch)
        for op in ops:
            wire.tag_message(op.tensor, stage, microbatch)
        return ops

    return get


def _in_dtype(x: Tensor, plan: Plan) -> Tensor:
    """Floating point inputs take the plan's dtype; indices of characters stay."""
    return x.to(getattr(torch, plan.dtype)) if x.is_floating_point() else x


class Training:
    """A rank's training: its model, its optimizer, its place among the replicas."""

    def __init__(
        self, plan: Plan, task: Task, mesh: DeviceMesh | None, device: str, tracer: Tracer, wire: Wire, *, dp_rank: int
    ) -> None:
        self._plan, self._task, self._device, self._tracer = plan, task, device, tracer
        self._dp_rank = dp_rank
        engine = Pipeline if plan.pp > 1 else Replica
        self._engine = engine(plan, task, mesh, device, tracer, wire)
        self.stages = self._engine.stages
        self.optimizer = make_optimizer(plan, self.stages)
        recorder = tracer.recorder
        if recorder is not None and "memory" in plan.record:
            tracer.memory = Memory(recorder, [layer for stage in self.stages for layer in stage.layers], self.optimizer)

    def num_buckets(self) -> int | None:
        """DDP's gradient buckets after it has settled on them; None without DDP."""
        module = self.stages[0].module
        if not isinstance(module, DistributedDataParallel):
            return None
        logged = module._get_ddp_logging_data()
        sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
        return len(str(sizes).split(","))

    def step(self, step: int) -> list[float]:
        """One training step."""
        tracer, recorder = self._tracer, self._tracer.recorder
        tracer.device.start_step()
        start_ns = tracer.device.now()
        cpu_ns = tracer.device.cpu_ns(start_ns)
        if recorder is not None:
            recorder.step, recorder.stage = step, NONE
        x, y = self._load(step)
        with tracer.span(Kind.ZERO_GRAD):
            self.optimizer.zero_grad()
            self._sample_memory()
        losses = self._engine.step(x, y)
        tracer.keep_grads([stage.module for stage in self.stages])
        with tracer.span(Kind.OPTIMIZER, tracer.device.pace.optimizer_s):
            self.optimizer.step()
            self._sample_memory(optimizer=True)
        if recorder is not None:
            recorder.stage = NONE
            end_ns = tracer.device.now()
            cpu_ns = tracer.device.cpu_ns(end_ns) - cpu_ns
            recorder.span(CODE[Kind.STEP], start_ns, end_ns, cpu_ns=cpu_ns, microbatch=NONE)
        return losses

    def _load(self, step: int) -> tuple[Tensor, Tensor]:
        """This replica's samples of the global batch; one event for every microbatch says which."""
        plan, device = self._plan, self._tracer.device
        device.catch_up()
        start_ns = device.now()
        size = plan.replica_batch
        samples = sample_order(plan, self._task, step)[self._dp_rank * size : (self._dp_rank + 1) * size]
        x, y = self._task.batch(samples)
        if len(x) != size or len(y) != size:
            raise ValueError(f"the task's batch gave {len(x)} inputs and {len(y)} targets for {size} samples")
        x = _in_dtype(x, plan).to(self._device)
        y = y.to(self._device)
        device.catch_up()
        if self._tracer.recorder is not None:
            for microbatch, part in enumerate(samples.reshape(plan.microbatches, -1).tolist()):
                self._tracer.recorder.load(start_ns, device.now(), microbatch, part)
        return x, y

    def _sample_memory(self, *, optimizer: bool = False) -> None:
        if self._tracer.memory is not None:
            self._tracer.memory.sample()
            if optimizer:
                self._tracer.memory.sample_optimizer()
