"""How many bytes a rank holds: parameters, gradients, optimizer state, and activations kept for backward.

In: the rank's layers and optimizer. Out: four numbers in the recorder, fresh at every event's end; of a layer that FSDP
gathers, the events of that layer count the gathered weights. Sizes are of allocated tensors of the model, not of the
process (the allocator, Python and torch itself come on top).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from labkit.engine.naming import local
from labkit.engine.recorder import Recorder


class Memory:
    """Keeps the recorder's four byte counts up to date. Layers are known by their codes."""

    def __init__(
        self, recorder: Recorder, layers: list[tuple[int, nn.Module]], optimizer: torch.optim.Optimizer
    ) -> None:
        self._recorder, self._optimizer = recorder, optimizer
        self._parameters = {code: list(layer.parameters()) for code, layer in layers}
        self._gathered = {code: list(_fsdp_parameters(layer)) for code, layer in layers}
        self.sharded = any(self._gathered.values())
        everything = [p for parameters in self._parameters.values() for p in parameters]
        self._addresses = {local(p).untyped_storage().data_ptr() for p in everything}
        self._held = dict.fromkeys(self._parameters, (0, 0))  # (parameters, gradients) of each layer
        self._kept: dict[int, int] = {}
        recorder.param_bytes = recorder.grad_bytes = recorder.activation_bytes = 0
        self.sample()
        self.sample_optimizer()

    def sample(self) -> None:
        """Parameters and gradients of all layers as they are now."""
        for code in self._parameters:
            self.sample_layer(code)

    def sample_work(self, code: int) -> None:
        """After work on one layer: its own; with FSDP all, since that also lets go of an earlier one's weights."""
        for each in self._parameters if self.sharded else (code,):
            self.sample_layer(each)

    def sample_layer(self, code: int, *, weights: bool = True) -> None:
        """One layer's as they are now; without `weights` only its gradients."""
        own = self._parameters[code]
        whole = [p._unsharded_param for p in self._gathered[code] if p.sharded_state.name == "UNSHARDED"]
        before = self._held[code]
        param_bytes = sum(map(_size, (*own, *whole))) if weights else before[0]
        grad_bytes = sum(_size(p.grad) for p in (*own, *whole) if p.grad is not None)
        self._recorder.param_bytes += param_bytes - before[0]
        self._recorder.grad_bytes += grad_bytes - before[1]
        self._held[code] = (param_bytes, grad_bytes)

    def sample_optimizer(self) -> None:
        """Optimizer state; it grows only in the first step."""
        state = getattr(self._optimizer, "optim", self._optimizer).state
        tensors = (v for per_param in state.values() for v in per_param.values() if isinstance(v, Tensor))
        self._recorder.optimizer_bytes = sum(map(_size, tensors))

    def saving(self) -> torch.autograd.graph.saved_tensors_hooks:
        """A context in which tensors that autograd keeps for backward are counted until it lets go of them."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, tensor: Tensor) -> Any:
        held = local(tensor)
        if _is_weight(tensor) or _is_weight(held):
            return tensor
        storage, address = held.untyped_storage(), held.data_ptr()
        if storage.data_ptr() in self._addresses:
            return tensor
        size = min(_size(held), storage.nbytes())  # a microbatch is a slice of the loaded batch: count the slice
        self._keep(address, size)
        # Detached: an output that its own backward keeps would else refer to itself through the graph, for ever.
        return _Saved(tensor.detach(), self, address, size)

    def _keep(self, address: int, size: int) -> None:
        holders = self._kept.get(address, 0)
        self._kept[address] = holders + 1
        if not holders:
            self._recorder.activation_bytes += size

    def let_go(self, address: int, size: int) -> None:
        self._kept[address] -= 1
        if not self._kept[address]:
            del self._kept[address]
            self._recorder.activation_bytes -= size


class _Saved:
    """A tensor that autograd keeps; its end is the moment the memory is free."""

    __slots__ = ("_address", "_memory", "_size", "tensor")

    def __init__(self, tensor: Tensor, memory: Memory, address: int, size: int) -> None:
        self.tensor, self._memory, self._address, self._size = tensor, memory, address, size

    def __del__(self) -> None:
        self._memory.let_go(self._address, self._size)


def _is_weight(tensor: Tensor) -> bool:
    """A parameter or a view of one, such as the transposed weight that a linear layer keeps."""
    return isinstance(tensor._base if tensor._is_view() else tensor, nn.Parameter)


def _unpack(kept: Any) -> Tensor:
    return kept.tensor if isinstance(kept, _Saved) else kept


def _size(tensor: Tensor) -> int:
    held = local(tensor)
    return held.numel() * held.element_size()


def _fsdp_parameters(module: nn.Module) -> Iterable[Any]:
    """FSDP2's own record of every parameter, which knows whether it is gathered. Private to torch, hence pinned."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            state = part._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            yield from (p for group in groups if group is not None for p in group.fsdp_params)
