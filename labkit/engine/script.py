"""A user's own training script, recorded: `with labkit.record("out/"):` around it, under torchrun or alone.

In: whatever runs inside the block (DDP, FSDP2, DTensor, pipelines, plain loops; gloo or NCCL). Out: one file per rank
in the folder, which `labkit merge` makes a Trace of. The model is not changed. While the block is open

- process groups are made through our recording one, so every sync is seen (`comm`);
- the first call of a model wraps its layers (`layers`), later ones are its forwards; `backward` is watched as a whole.
  Torch asks us at every call of any module, which slows them all down, so we listen only while no model is at work;
- pipeline stages report each chunk of work, as in our own runs (`train.watch_stage`);
- a step ends with the last optimizer step before the next forward.

All of it is put back when the block ends.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed.pipelining.stage import _PipelineStageBase
from torch.nn.modules import module as hooks
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers

from labkit.engine import comm
from labkit.engine.cuda_clock import CudaClock
from labkit.engine.device import Device
from labkit.engine.host_clock import HostClock, node_name
from labkit.engine.layers import layers_of
from labkit.engine.recorder import CODE, Recorder
from labkit.engine.tracer import Tracer
from labkit.engine.train import watch_stage
from labkit.engine.wire import Wire
from labkit.event import NONE, Kind
from labkit.mesh import Mesh
from labkit.part import RankFile, encode_part

RECORDABLE = ("gloo", "nccl", "undefined")  # undefined: torch chooses, gloo or NCCL
MAX_EVENTS = 1_000_000

_ONE_AT_A_TIME = threading.Lock()
"""A block changes torch for the whole process, so there can be one."""


@contextlib.contextmanager
def record(
    out: str | os.PathLike[str], *, dp: int | None = None, tp: int | None = None, pp: int | None = None,
    max_events: int = MAX_EVENTS,
) -> Iterator[None]:  # fmt: skip
    """Record the training inside the block into `out`, a file for each rank; `labkit merge out` reads them.

    Open it before `init_process_group` (or `init_device_mesh`). dp, tp, pp: the degrees of your mesh, tp varying
    fastest, so that syncs are named by their axis; without them all ranks count as replicas, which the trace notes.
    Raises RuntimeError where it cannot see what happens, or inside another such block, ValueError for degrees below 1.
    """
    degrees = {axis: size for axis, size in (("pp", pp), ("dp", dp), ("tp", tp)) if size is not None}
    for axis, size in degrees.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{axis}={size!r}: give a whole number of at least 1")
    if dist.is_initialized():
        raise RuntimeError(
            "torch.distributed is initialised already, and groups made before cannot be seen: open labkit.record "
            "before init_process_group and init_device_mesh"
        )
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise RuntimeError("labkit.record is open already, and records all that happens inside it: leave this one out")
    try:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        script = _Script(max_events)
        with script.watching():
            try:
                yield
                script.read_clock()
            finally:
                script.save(folder, degrees)
    finally:
        _ONE_AT_A_TIME.release()


class _Script:
    """What one rank of the script does, as far as it shows from outside."""

    def __init__(self, max_events: int) -> None:
        self._recorder = Recorder(int(os.environ.get("RANK", 0)), [], max_events=max_events)
        self._cuda_clock = CudaClock() if torch.cuda.is_available() else None
        device = Device(real_ns=self._cuda_clock.mark if self._cuda_clock else None)
        self._wire = Wire(Mesh(), device, recorder=self._recorder, nccl=self._cuda_clock is not None)
        self._tracer = ScriptTracer(device, self._wire, self._recorder)
        self._known: set[int] = set()  # models that are hooked
        self._stage_models: set[int] = set()  # those that are stages of a pipeline
        self._called: dict[int, nn.Module] = {}  # models whose calls we hear end; kept, so that an id stays theirs
        self._running: nn.Module | None = None  # the model whose call is open
        self._layer: tuple[int, int, int] | None = None  # of a model that is its own layer, in its first call
        self._in_chunk = False  # a pipeline's stage is at work, and reports it itself
        self._work: contextlib.AbstractContextManager[None] | None = None
        self._hooks = contextlib.ExitStack()  # all that is put back in the end
        self._pre_hook: Any = None  # on every module, while we listen
        self._microbatch = NONE
        self._step_start_ns: int | None = None
        self._stepped_ns: int | None = None  # end of the last optimizer step, while no forward has followed
        self._steps_done = 0
        self._optimizers_open = 0
        self._optimizer_start = (0, 0)
        self._num_ranks = 1
        self._clock: HostClock | None = None
        self._readings: list = []

    # -- what is watched

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        comm.use(self._wire)
        comm.register()
        with contextlib.ExitStack() as stack:
            stack.enter_context(_replaced(c10d, "_new_process_group_helper", self._new_group))
            stack.enter_context(_replaced(torch.autograd, "backward", self._backward))
            stack.enter_context(_replaced(_PipelineStageBase, "__init__", self._new_stage))
            for handle in (
                optimizers.register_optimizer_step_pre_hook(self._optimizer_begins),
                optimizers.register_optimizer_step_post_hook(self._optimizer_ends),
            ):
                stack.callback(handle.remove)
            stack.enter_context(self._hooks)
            stack.callback(self._tracer.close)
            stack.callback(self._listen, False)
            self._listen(True)
            yield

    def _listen(self, on: bool) -> None:
        """Whether torch tells us of every module that is called."""
        if on and self._pre_hook is None:
            self._pre_hook = hooks.register_module_forward_pre_hook(self._call_begins)
        elif not on and self._pre_hook is not None:
            self._pre_hook.remove()
            self._pre_hook = None

    def _new_group(self, original: Callable, *args: Any, **kwargs: Any) -> Any:
        """Every process group is made here; gloo and NCCL ones become recording ones."""
        call = inspect.signature(original).bind(*args, **kwargs)
        given, backend = call.arguments, str(call.arguments["backend"]).lower()
        is_default = not given["global_ranks_in_group"]
        if is_default:
            self._num_ranks, self._recorder.rank = given["group_size"], given["group_rank"]
            self._wire.mesh = Mesh(dp=self._num_ranks)
        if any(name in backend for name in RECORDABLE):
            self._wire.nccl = backend != "gloo" and torch.cuda.is_available()
            given |= {"backend": c10d.Backend(comm.BACKEND), "backend_options": None}
        made = original(*call.args, **call.kwargs)
        if is_default and self._num_ranks > 1:
            self._clock = HostClock(given["store"], self._recorder.rank, self._num_ranks)
            self._readings += self._clock.read()
        return made

    def _call_begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or self._running is not None or self._in_chunk:
            return
        self._running = module
        self._listen(False)
        if not torch.is_grad_enabled() or id(module) in self._stage_models:
            # Evaluation, or torch asking a pipeline stage for its shapes: no work of a step.
            self._recorder.spans, self._recorder.step = False, NONE
        else:
            self._step_goes_on()
            self._microbatch += 1
            new = self._hook(module, stage=0)
            self._work = self._tracer.work(CODE[Kind.FORWARD], 0, self._microbatch)
            self._work.__enter__()
            if new and layers_of(module)[0][1] is module:
                self._layer = self._tracer.begin_layer(module)  # it was wrapped too late for this call
        if id(module) not in self._called:
            self._called[id(module)] = module
            handle = module.register_forward_hook(self._call_ends, prepend=True, always_call=True)
            self._hooks.callback(handle.remove)

    def _call_ends(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if torch.compiler.is_compiling() or self._running is not module:
            return None
        if self._layer is not None and output is not None:  # None after an error
            output = self._tracer.end_layer(self._layer, module, args, output)
        if self._work is not None:
            self._work.__exit__(None, None, None)
        self._running = self._work = self._layer = None
        self._recorder.spans = True
        self._listen(True)
        return output

    def _backward(self, original: Callable, *args: Any, **kwargs: Any) -> None:
        if self._in_chunk or self._running is not None or self._step_start_ns is None:
            original(*args, **kwargs)
            return
        with self._tracer.work(CODE[Kind.BACKWARD], 0, self._microbatch):
            original(*args, **kwargs)
        self._wire.wait_for_unfinished()

    def _new_stage(self, original: Callable, stage: _PipelineStageBase, *args: Any, **kwargs: Any) -> None:
        original(stage, *args, **kwargs)
        self._stage_models.add(id(stage.submod))
        codes = self._hook(stage.submod, stage.stage_index, splits_backward=True)
        watch_stage(stage, stage.stage_index, codes, self._tracer, self._wire, around=self._chunk)

    @contextlib.contextmanager
    def _chunk(self) -> Iterator[None]:
        """One chunk of a pipeline stage's work."""
        self._step_goes_on()
        self._in_chunk = True
        self._listen(False)
        try:
            yield
        finally:
            self._in_chunk = False
            self._listen(True)

    def _hook(self, model: nn.Module, stage: int, *, splits_backward: bool = False) -> list[int]:
        """Hook the layers of a model that is new; their codes."""
        if id(model) in self._known:
            return []
        self._known.add(id(model))
        layers = [(self._recorder.layers(name), layer) for name, layer in layers_of(model)]
        self._tracer.attach(stage, layers, splits_backward=splits_backward)
        return [code for code, _ in layers]

    # -- steps

    def _step_goes_on(self) -> None:
        """A forward: if an optimizer has stepped since the last one, a new step has begun."""
        if self._step_start_ns is None:
            self._step_start_ns = self._tracer.device.now()
        elif self._stepped_ns is not None:
            self._close_step()
        self._recorder.step = self._steps_done

    def _close_step(self) -> None:
        recorder = self._recorder
        recorder.step, recorder.stage = self._steps_done, NONE
        recorder.span(CODE[Kind.STEP], self._step_start_ns, self._stepped_ns, microbatch=NONE)
        self._steps_done += 1
        self._microbatch = NONE
        self._step_start_ns, self._stepped_ns = self._stepped_ns, None

    def _optimizer_begins(self, optimizer: Optimizer, *_: Any) -> None:
        self._optimizers_open += 1  # an optimizer may call another one
        if self._optimizers_open == 1 and self._step_start_ns is not None:
            self._recorder.step = self._steps_done
            start_ns = self._tracer.device.now()
            self._optimizer_start = (start_ns, self._tracer.device.cpu_ns(start_ns))

    def _optimizer_ends(self, optimizer: Optimizer, *_: Any) -> None:
        self._optimizers_open -= 1
        if self._optimizers_open or self._step_start_ns is None:
            return
        start_ns, cpu_ns = self._optimizer_start
        recorder, device = self._recorder, self._tracer.device
        self._stepped_ns = end_ns = device.now()
        recorder.layer = recorder.microbatch = NONE
        recorder.span(CODE[Kind.OPTIMIZER], start_ns, end_ns, device.cpu_ns(end_ns) - cpu_ns)
        recorder.step = self._steps_done + 1  # what comes now, unless it is another optimizer

    # -- the end

    def read_clock(self) -> None:
        """Compare the hosts' clocks once more, so that drift shows."""
        if self._clock is not None:
            self._readings += self._clock.read()

    def save(self, folder: Path, degrees: dict[str, int]) -> None:
        if self._stepped_ns is not None:
            self._close_step()
        part = self._recorder.take(self._cuda_clock.resolve if self._cuda_clock else None)
        file = RankFile(
            self._recorder.rank, None, list(self._recorder.layers.names), [], [encode_part(part)], [], 0.0,
            os.environ.get("TORCHELASTIC_RUN_ID", ""), num_ranks=self._num_ranks, degrees=degrees,
            script=Path(sys.argv[0]).name, node=node_name(), clock=self._readings, torch=str(torch.__version__),
        )  # fmt: skip
        file.save(folder)


class ScriptTracer(Tracer):
    """A tracer of layers that may give anything: of several tensors the first one tells when backward comes by."""

    def begin_layer(self, module: nn.Module) -> tuple[int, int, int]:
        """A model that is its own only layer, and whose call is already open: (layer, start, CPU start)."""
        self.recorder.layer = code = self.recorder.layers(layers_of(module)[0][0])
        start_ns = self.device.now()
        return code, start_ns, self.device.cpu_ns(start_ns)

    def end_layer(self, begun: tuple[int, int, int], module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        """The end of that call. Returns its output, or a view of it."""
        code, start_ns, cpu_ns = begun
        tensor = self._tensor_of(module, output)
        self._forward_ends(code, CODE[Kind.FORWARD], start_ns, cpu_ns, tensor)
        return output if tensor is None else self._await_backward(code, args, output, tensor)

    def _tensor_of(self, module: nn.Module, output: Any) -> Tensor | None:
        return output if isinstance(output, Tensor) else next(_tensors(output), None)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and mappings, those that need a gradient first."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | tuple | list):
        inside = [t for one in (value.values() if isinstance(value, dict) else value) for t in _tensors(one)]
        yield from sorted(inside, key=lambda tensor: not tensor.requires_grad)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, by: Callable) -> Iterator[None]:
    """`owner.name` calls `by(original, ...)` until the block ends."""
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return by(original, *args, **kwargs)

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, original)
