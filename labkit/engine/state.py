"""The whole model's weights and gradients, from whatever pieces the ranks hold. For the proof that nothing changed.

In: a rank's stages after training. Out: a `State`: numpy arrays by name ("fc0.linear.weight").
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from labkit.engine.by_hand import cut_dim
from labkit.engine.naming import named_parameters
from labkit.engine.parallelize import Stage
from labkit.job import State


def gather_state(stages: list[Stage]) -> State:
    """Collect what is cut or sharded. All ranks must call it together."""
    weights, grads = {}, {}
    for name, parameter, module in (found for stage in stages for found in named_parameters(stage.module)):
        weights[name] = _whole(parameter.detach(), module, name)
        grad = parameter.grad
        grads[name] = _whole(torch.zeros_like(parameter) if grad is None else grad, module, name)
    return State(weights, grads)


def _whole(tensor: Tensor, module: nn.Module, name: str) -> np.ndarray:
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    dim = cut_dim(module, name.rpartition(".")[2])
    if dim is not None:
        pieces = [torch.empty_like(tensor) for _ in range(module.group.size())]
        dist.all_gather(pieces, tensor.contiguous(), group=module.group)
        tensor = torch.cat(pieces, dim)
    tensor = tensor.cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
