"""Parameters by the names the serial model has them under, whatever they are wrapped in, and what a rank holds of them.

In: a wrapped module. Out: names such as "fc0.linear.weight".
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def named_parameters(wrapped: nn.Module) -> Iterator[tuple[str, nn.Parameter, nn.Module]]:
    """(name, parameter, the module that holds it), without what DDP and checkpointing add to the names."""
    root = wrapped.module if isinstance(wrapped, DistributedDataParallel) else wrapped
    for path, module in root.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            parts = [part for part in (*path.split("."), name) if part != "_checkpoint_wrapped_module"]
            yield ".".join(parts), parameter, module


def local(tensor: Tensor) -> Tensor:
    """The tensor that holds this rank's memory: a DTensor's shard, an asynchronous result's elements."""
    for inside in ("_local_tensor", "elem"):
        tensor = getattr(tensor, inside, tensor)
    return tensor
