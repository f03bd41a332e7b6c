"""Values of the linear layers inside bigger layers, such as the four of an attention.

In: the named layers of a rank's stages. Out: value rows: what each linear layer got and gave, as this rank holds it.
A layer that is all one linear layer (and a function without weights) is told by its own input and output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

Keep = Callable[[str, str, Tensor], None]
"""`keep(what, path, tensor)`: a value of the linear layer at `path` within its named layer; what: input or output."""


def hook_inner(layer: nn.Module, keep: Keep) -> list[Any]:
    """Handles of hooks that keep what the linear layers inside `layer` get and give in a forward."""
    handles = []
    for path, linear in inner_linears(layer):
        handles.append(linear.register_forward_pre_hook(partial(_gets, keep, path)))
        handles.append(linear.register_forward_hook(partial(_gives, keep, path)))
    return handles


def inner_linears(layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """(path, module) of what multiplies with a weight matrix, unless the layer's weights are all that module's."""
    whole = len(list(layer.parameters()))
    for path, module in layer.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Embedding) or not isinstance(weight, nn.Parameter) or weight.dim() != 2:
            continue
        if path and len(list(module.parameters())) < whole:
            yield path, module


def _gets(keep: Keep, path: str, _: nn.Module, args: tuple[Any, ...]) -> None:
    _keep(keep, "input", path, args[0])


def _gives(keep: Keep, path: str, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
    _keep(keep, "output", path, output)


def _keep(keep: Keep, what: str, path: str, tensor: Tensor) -> None:
    with torch.no_grad():  # a shard that is still on its way is waited for when its value is copied
        keep(what, path, tensor.to_local() if isinstance(tensor, DTensor) else tensor)
