"""Which layer is at work: what turns forward and backward into events, and holds them to the set pace.

In: the layers of a rank's stages. Out: spans in the recorder. Layers run one after the other, so backward reaches
them in reverse: the gradient hook on a layer's output marks the start of its backward and the end of the one above.
That costs one tensor hook per layer; a module's full backward hook costs twenty times as much and breaks the
schedules that split backward. A layer's forward is wrapped, since hooks of modules cost several times a call. It all
is put back by `close`.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from labkit.engine.device import Device
from labkit.engine.inner import hook_inner
from labkit.engine.memory import Memory
from labkit.engine.naming import local, named_parameters
from labkit.engine.recorder import CODE, Recorder
from labkit.engine.wire import Wire
from labkit.event import NONE, Kind

_FORWARD, _RECOMPUTE, _BACKWARD = CODE[Kind.FORWARD], CODE[Kind.RECOMPUTE], CODE[Kind.BACKWARD]
_INPUT, _WEIGHT, _LOSS = CODE[Kind.BACKWARD_INPUT], CODE[Kind.BACKWARD_WEIGHT], CODE[Kind.LOSS]
_STAGE = {
    _FORWARD: CODE[Kind.STAGE_FORWARD],
    _BACKWARD: CODE[Kind.STAGE_BACKWARD],
    _INPUT: CODE[Kind.STAGE_BACKWARD_INPUT],
    _WEIGHT: CODE[Kind.STAGE_BACKWARD_WEIGHT],
}

_OUR_HOOK = -1  # torch's handles count from 0


class Tracer:
    """Spans of computation of one rank. Without a recorder it only keeps the pace."""

    def __init__(self, device: Device, wire: Wire, recorder: Recorder | None) -> None:
        self.device, self.recorder, self._wire = device, recorder, wire
        self.memory: Memory | None = None
        self._values = recorder is not None and recorder.value_limit_bytes > 0
        self._num_layers: dict[int, int] = {}  # of each stage
        self._num_weights: dict[int, int] = {}  # parameters of each layer with a gradient hook
        self._hooked: set[int] = set()
        self._handles: list[Any] = []
        self._splits_backward = False
        self.stage = 0
        self._kind = _FORWARD  # of the stage's present work
        self._layer_kind = _FORWARD  # of its layers: the weight half of the first stage is their whole backward
        self._work_ns = 0  # set duration of one layer's share of it
        self._open: tuple[int, int, int] | None = None  # layer at work in backward: (layer, start, CPU start)
        self._weights_left: dict[int, int] = {}
        self._weights_open = (0, 0)  # (start, CPU start) of the layer at work in a weight half
        self._backward_ended = False
        self._due_ns = 0  # when the stage's present work has lasted its set duration
        self._late_ns = NONE
        pace = device.pace
        seconds = (pace.forward_s, pace.backward_s, pace.backward_input_s, pace.backward_weight_s)
        self._set_ns = dict(zip(_STAGE, map(device.set_ns, seconds), strict=True))

    # -- set up and put back

    def attach(self, stage: int, layers: list[tuple[int, nn.Module]], *, splits_backward: bool = False) -> None:
        """Hook the layers of a stage, given as (code, module) in order."""
        self._splits_backward = splits_backward
        self._num_layers[stage] = len(layers)
        for code, module in layers:
            self._handles.append(_Wrapped(module, partial(self._forward, code, module)))
            if self._values:
                self._handles += hook_inner(module, partial(self._keep_inner, code))

    def close(self) -> None:
        for handle in reversed(self._handles):
            handle.remove()
        self._handles.clear()
        self.recorder = None  # copies of a watched model outlive it

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        """Copies of a watched model report here too, rather than to a copy of all that was recorded."""
        return self

    # -- a stage's work on one microbatch

    @contextlib.contextmanager
    def work(self, kind: int, stage: int, microbatch: int) -> Iterator[None]:
        """Everything inside is the stage's forward, backward, or half of a backward, of this microbatch."""
        recorder, device = self.recorder, self.device
        self.stage, self._kind, self._layer_kind = stage, kind, kind
        if recorder is not None:
            recorder.stage, recorder.microbatch, recorder.layer = stage, microbatch, NONE
        start_ns = device.now()
        cpu_ns = device.cpu_ns(start_ns)
        duration_ns = self._set_ns[kind]
        self._due_ns = start_ns + duration_ns
        self._work_ns = duration_ns // self._num_layers.get(stage, 1)
        if recorder is not None:
            recorder.begin(_STAGE[kind], start_ns)
        if self.memory is not None and kind == _FORWARD:
            with self.memory.saving():
                yield
        else:
            yield
        self._finish(start_ns, cpu_ns)

    def _finish(self, start_ns: int, cpu_ns: int) -> None:
        """End the stage's work: at once, when its set duration is over, or where its backward already ended."""
        recorder, device = self.recorder, self.device
        if not self._backward_ended:
            self._settle()
        now_ns = device.now()
        end_ns = self._wire.backward_end_ns if self._backward_ended else now_ns
        self._backward_ended = False
        if recorder is not None:
            if self.memory is not None:
                self.memory.sample()
            recorder.layer = NONE
            recorder.span(_STAGE[self._kind], start_ns, end_ns, device.cpu_ns(now_ns) - cpu_ns, self._late_ns)

    def _settle(self) -> None:
        if self.device.paced:
            self.device.block_until(self._due_ns)  # in case the layers did not fill the stage's duration
            self._late_ns = self.device.settle(self._set_ns[self._kind])

    # -- one layer, forward

    def _forward(self, code: int, module: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The layer's forward as an event, and a hook for its backward."""
        recorder, device, recomputing = self.recorder, self.device, _is_recomputing()
        start_ns = device.now()
        if device.paced:
            device.advance(self._forward_ns(recomputing), ("forward", code))
        if recorder is not None:
            kind = _RECOMPUTE if recomputing else _FORWARD
            recorder.layer = code
            recorder.begin(kind, start_ns)
            if self._splits_backward or self._values or (self.memory is not None and self.memory.sharded):
                self._look_inside(code, module, () if recomputing else args, start_ns)
            cpu_ns = device.cpu_ns(start_ns)
        output = forward(*args, **kwargs)
        tensor = self._tensor_of(module, output)
        if device.paced:
            device.worked(("forward", code))
        if recorder is not None:
            self._forward_ends(code, kind, start_ns, cpu_ns, tensor)
        return output if recomputing or tensor is None else self._await_backward(code, args, output, tensor)

    def _forward_ns(self, recomputing: bool) -> int:
        """Set duration of a layer's forward; where a backward asks for it again, that backward has its own."""
        return self._set_ns[_FORWARD] // self._num_layers.get(self.stage, 1) if recomputing else self._work_ns

    def _look_inside(self, code: int, module: nn.Module, args: tuple[Any, ...], t_ns: int) -> None:
        self._hook_weights(code, module)
        if self._values and args:
            self._keep_values(module, args, t_ns)

    def _tensor_of(self, module: nn.Module, output: Any) -> Tensor | None:
        """What of a layer's output tells when backward comes by."""
        if not isinstance(output, Tensor):
            raise TypeError(
                f"layer {type(module).__name__} gives a {type(output).__name__}: every named layer must give one tensor"
            )
        return output

    def _forward_ends(self, code: int, kind: int, start_ns: int, cpu_ns: int, output: Tensor | None) -> None:
        recorder, end_ns = self.recorder, self.device.now()
        if self._values and kind == _FORWARD and output is not None:
            recorder.value("output", output, end_ns)
        if self.memory is not None:
            self.memory.sample_work(code)
        recorder.span(kind, start_ns, end_ns, self.device.cpu_ns(end_ns) - cpu_ns, NONE, code)

    def _await_backward(self, code: int, args: tuple[Any, ...], output: Any, tensor: Tensor) -> Any:
        """Have the layer's backward noticed. Returns the output, or a view of it."""
        if not tensor.requires_grad:
            return output
        if args and tensor is args[0]:  # a layer that passes its input on: its backward must be told apart
            if output is not tensor:
                return output
            output = tensor = tensor.view_as(tensor)
        _hook_grad(tensor, partial(self._backward_reaches, code))
        return output

    def _keep_values(self, module: nn.Module, args: tuple[Any, ...], t_ns: int) -> None:
        for tensor in args:
            if isinstance(tensor, Tensor):
                self.recorder.value("input", tensor, t_ns)
        for name, parameter in module.named_parameters():
            self.recorder.value("weight", local(parameter), t_ns, of=self._path(self.recorder.layer, name))

    def _keep_inner(self, code: int, what: str, path: str, tensor: Tensor) -> None:
        if not _is_recomputing():
            self.recorder.value(what, tensor, self.device.now(), of=self._path(code, path))

    def _path(self, code: int, name: str) -> int:
        """Code of the full name of what is inside a layer, such as fc0.linear.weight."""
        return self.recorder.layers(f"{self.recorder.layers.names[code]}.{name}")

    def keep_grads(self, modules: list[nn.Module]) -> None:
        """Values of the gradients as the optimizer gets them."""
        if self._values:
            for name, parameter, _ in (found for module in modules for found in named_parameters(module)):
                if parameter.grad is not None:
                    self.recorder.value("grad", local(parameter.grad), self.device.now(), of=self.recorder.layers(name))

    # -- one layer, backward

    def _backward_reaches(self, code: int, grad: Tensor) -> None:
        """The gradient of the output of layer `code` is there: the layer above is done, this one starts."""
        if self._weights_left:
            return  # the weight half starts inside a layer and may pass its output again
        device, recorder = self.device, self.recorder
        start_ns = device.now()
        cpu_ns = device.cpu_ns(start_ns)
        if self._open is None:
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
        else:
            self._close_layer(start_ns, cpu_ns)
            if self.memory is not None:  # which took a while
                start_ns = device.now()
                cpu_ns = device.cpu_ns(start_ns)
        if device.paced:
            device.advance(self._work_ns, ("backward", code))
            cpu_ns = device.cpu_ns(start_ns)
        self._open = (code, start_ns, cpu_ns)
        if recorder is not None:
            recorder.layer = code
            recorder.begin(self._layer_kind, start_ns)

    def _close_layer(self, end_ns: int, cpu_end_ns: int) -> None:
        code, start_ns, cpu_ns = self._open
        if self.device.paced:
            self.device.worked(("backward", code))
        if self.recorder is None:
            return
        memory = self.memory
        if memory is not None:  # FSDP has let go of the weights by now: they count until the row is written
            memory.sample_layer(code, weights=not memory.sharded)
        self.recorder.span(self._layer_kind, start_ns, end_ns, cpu_end_ns - cpu_ns, NONE, code)
        if memory is not None and memory.sharded:
            memory.sample_work(code)

    def _backward_ends(self) -> None:
        """Called by autograd when the graph is done; DDP's own callback, which waits for its buckets, comes later."""
        end_ns = self.device.now()
        self._close_layer(end_ns, self.device.cpu_ns(end_ns))
        self._open = None
        self._settle()
        self._wire.backward_end_ns = self.device.now()
        self._backward_ended = True

    # -- one layer, weight half of a split backward

    def _hook_weights(self, code: int, module: nn.Module) -> None:
        """Gradient hooks on the parameters as forward sees them (FSDP swaps in gathered ones)."""
        for name, parameter in module.named_parameters():
            if id(parameter) not in self._hooked and parameter.requires_grad:
                self._hooked.add(id(parameter))
                self._num_weights[code] = self._num_weights.get(code, 0) + 1
                self._handles.append(parameter.register_hook(partial(self._weight_done, code, name)))

    def begin_weights(self, layers: list[int]) -> None:
        """The weight half of these layers starts now."""
        self._weights_left = {code: self._num_weights[code] for code in layers if code in self._num_weights}
        if self._weights_left:
            self._open_weights()
        else:
            self._layer_kind = _BACKWARD

    def _open_weights(self) -> None:
        start_ns = self.device.now()
        self._weights_open = (start_ns, self.device.cpu_ns(start_ns))
        if self.device.paced:
            self.device.advance(self._work_ns, ("weight", 0))

    def _weight_done(self, code: int, name: str, grad: Tensor) -> None:
        if self._values:
            self.recorder.value("grad_local", local(grad), self.device.now(), of=self._path(code, name))
        if self.memory is not None and self.memory.sharded:
            self.memory.sample_work(code)
        if code not in self._weights_left:
            return
        self._weights_left[code] -= 1
        if self._weights_left[code]:
            return
        del self._weights_left[code]
        start_ns, cpu_ns = self._weights_open
        if self.device.paced:
            self.device.worked(("weight", 0))
        if self.recorder is not None:
            end_ns = self.device.now()
            self.recorder.span(_WEIGHT, start_ns, end_ns, self.device.cpu_ns(end_ns) - cpu_ns, NONE, code)
        if self._weights_left:
            self._open_weights()

    # -- the rest of a step

    def loss(self, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss function, recorded. In a paced run it has no duration of its own."""

        def recorded(output: Tensor, target: Tensor) -> Tensor:
            start_ns = self.device.now()
            cpu_ns = self.device.cpu_ns(start_ns)
            saving = self.memory.saving() if self.memory is not None else contextlib.nullcontext()
            with saving:
                value = loss(output, target)
            if self.recorder is not None:
                end_ns = self.device.now()
                self.recorder.layer = NONE
                self.recorder.span(_LOSS, start_ns, end_ns, self.device.cpu_ns(end_ns) - cpu_ns)
            return value

        return recorded

    @contextlib.contextmanager
    def span(self, kind: str, duration_s: float = 0.0) -> Iterator[None]:
        """Any other part of a step (loading, optimizer ...), with a set duration where the pace gives one."""
        device, recorder, code = self.device, self.recorder, CODE[kind]
        if not duration_s:
            device.catch_up()
        start_ns = device.now()
        cpu_ns = device.cpu_ns(start_ns)
        if recorder is not None:
            recorder.microbatch = recorder.layer = NONE
            recorder.begin(code, start_ns)
        if duration_s:
            device.advance(device.set_ns(duration_s), (kind, 0))
        yield
        if duration_s:
            device.worked((kind, 0))
            device.settle(device.set_ns(duration_s))
        else:
            device.catch_up()
        if recorder is not None:
            end_ns = device.now()
            recorder.span(code, start_ns, end_ns, device.cpu_ns(end_ns) - cpu_ns)


class _Wrapped:
    """A module whose forward is called through `around(forward, ...)` until it is removed.

    A partial of the bound method, since that is copied with the module: a copy runs its own weights.
    """

    def __init__(self, module: nn.Module, around: Callable[..., Any]) -> None:
        self._own = vars(module).get("forward")  # mostly its class's
        self._module, self._forward = module, partial(around, module.forward)
        vars(module)["forward"] = self._forward

    def remove(self) -> None:
        if vars(self._module).get("forward") is not self._forward:
            return  # somebody has put another in its place
        if self._own is None:
            del vars(self._module)["forward"]
        else:
            vars(self._module)["forward"] = self._own


def _hook_grad(tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
    """`tensor.register_hook(hook)` without the handle to remove it, which costs four times as much as the rest."""
    grad_fn = tensor.grad_fn
    if grad_fn is None or tensor._backward_hooks is not None:
        tensor.register_hook(hook)
        return
    hooks = OrderedDict()
    hooks[_OUR_HOOK] = hook
    tensor._backward_hooks = hooks
    grad_fn._register_hook_dict(tensor)


def _is_recomputing() -> bool:
    """Whether a forward that runs now was asked for by a backward."""
    return torch._C._current_graph_task_id() != -1
