"""A user's layers tried on a few samples, in the parent: what cannot work is said with its layer before a rank starts.

In: named modules, one microbatch, the loss. Out: nothing, or a PlanError. Copies of the modules are used; what works
only inside a rank, such as a layer that talks to others, is left to the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from labkit.plan import PlanError

Loss = Callable[[Tensor, Tensor], Tensor]


def try_layers(modules: Mapping[str, nn.Module], x: Tensor, target: Tensor, loss: Loss) -> None:
    """One forward, layer by layer, and the loss. Raises PlanError."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        given = "the data"
        for name, module in modules.items():
            label = f"layer {name!r} ({type(module).__name__})"
            found = _apply(f"{label} cannot take {_shape(x)} from {given}", module, x)
            if found is None:
                return
            if not isinstance(found, Tensor):
                raise PlanError(
                    f"{label} gives a {type(found).__name__}, but layers hand on one tensor: wrap it in a module that "
                    f"returns the tensor, or make one layer of it and the next"
                )
            x, given = found, label
        value = _apply(f"the loss cannot take {_shape(x)} from {given} and targets {_shape(target)}", loss, x, target)
    if value is not None and not (isinstance(value, Tensor) and value.dim() == 0):
        shape = _shape(value) if isinstance(value, Tensor) else type(value).__name__
        raise PlanError(f"the loss gives {shape}: give one number as a tensor, the mean over the samples")


def _apply(problem: str, function: Callable, *args: Tensor) -> object | None:
    """function(*args); None where it needs the other ranks."""
    try:
        return function(*args)
    except Exception as error:
        if "process group" in str(error):
            return None
        raise PlanError(f"{problem}: {error}") from error


def _shape(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"


def why_not_cut(modules: Mapping[str, nn.Module], tp: int) -> str:
    """Each layer, and why tensor parallelism over `tp` ranks cannot cut it."""
    said = []
    for name, module in modules.items():
        outputs = [str(part.out_features) for part in module.modules() if isinstance(part, nn.Linear)]
        why = f"{', '.join(outputs)} outputs" if outputs else "holds no nn.Linear"
        said.append(f"{name} ({type(module).__name__}: {why})")
    return "; ".join(said)
