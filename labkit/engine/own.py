"""A user's own model, data and loss as a task.

In: an `nn.Sequential`, a list or a mapping of layers, or any module with the names of the parts it applies in turn.
Out: a `Task`. It may be made in a notebook cell, or in a file: `load_task("file.py:make_task")`.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import cloudpickle
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.engine.tasks import Task

Model = nn.Module | Mapping[str, nn.Module] | Sequence[nn.Module] | Sequence[tuple[str, nn.Module]]
Batch = Callable[[np.ndarray], tuple[Tensor, Tensor]]
Pairs = list[tuple[str, nn.Module]]


def own_task(
    model: Model,
    batch: Batch,
    *,
    num_samples: int,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    split: Sequence[str] | None = None,
) -> Task:
    """A task from a user's own modules: `own_task(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), batch, ...)`.

    batch gets dataset indices (int64 array) and returns (input, target). split: for a module that is no sequence, the
    names of the submodules that it applies one after the other, as in `named_modules()`; without it such a module is
    one layer. Weights are taken as they are; they and floating point inputs are turned into the plan's dtype.
    Raises TypeError or ValueError for what is no such thing.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples={num_samples}: the task needs at least one sample")
    pairs = _split(model, split) if split is not None else _named(model)
    _check(pairs)
    if split is not None:
        _check_split(model, pairs, batch(np.arange(min(2, num_samples)))[0])
    return Task(
        tuple(name for name, _ in pairs), lambda position: copy.deepcopy(pairs[position][1]), batch, loss, num_samples
    )


def _named(model: Model) -> Pairs:
    if isinstance(model, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return list(model.named_children())
    if isinstance(model, nn.Module):
        return [(type(model).__name__.lower(), model)]
    if isinstance(model, Mapping):
        return list(model.items())
    return [
        pair if isinstance(pair, tuple) else (f"{type(pair).__name__.lower()}{i}", pair) for i, pair in enumerate(model)
    ]


def _check(pairs: Pairs) -> None:
    names = tuple(name for name, _ in pairs)
    for name, module in pairs:
        if not isinstance(module, nn.Module):
            raise TypeError(f"layer {name!r} is a {type(module).__name__}: give an nn.Module")
        if not name or "." in name or hasattr(nn.Module(), name):
            raise ValueError(
                f"layer name {name!r}: give a name without dots that torch's modules do not use themselves"
            )
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"layer names {names}: give at least one layer, and every layer its own name")
    owners: dict[int, str] = {}
    for name, module in pairs:
        for parameter in module.parameters():
            if owners.setdefault(id(parameter), name) != name:
                raise ValueError(
                    f"layers {owners[id(parameter)]!r} and {name!r} share weights, which could not stay equal on "
                    f"different ranks: put them into one layer"
                )


# ---- a module with a split


def _split(model: Model, split: Sequence[str]) -> Pairs:
    if not isinstance(model, nn.Module):
        raise TypeError(f"split= is for one nn.Module, not for a {type(model).__name__}: its parts are layers already")
    known = dict(model.named_modules())
    for path in split:
        if path not in known or not path:
            raise ValueError(f"split: the model has no module {path!r}: it has {', '.join(filter(None, known))}")
    inside = {id(parameter) for path in split for parameter in known[path].parameters()}
    outside = [name for name, parameter in model.named_parameters() if id(parameter) not in inside]
    if outside:
        raise ValueError(f"split: no part holds the weights {', '.join(outside)}: name the modules they belong to")
    return [(path.replace(".", "_"), known[path]) for path in split]


def _check_split(model: nn.Module, pairs: Pairs, x: Tensor) -> None:
    """The parts, one after the other, must give what the model gives."""
    copies = copy.deepcopy(nn.ModuleList([model, *(module for _, module in pairs)])).eval()
    x = x.to(next((p.dtype for p in copies.parameters()), x.dtype)) if x.is_floating_point() else x
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        whole, chained, name = copies[0](x), x, ""
        try:
            for name, part in zip((name for name, _ in pairs), copies[1:], strict=True):  # noqa: B007
                chained = part(chained)
        except Exception as error:
            raise ValueError(
                f"split: part {name!r} cannot take what the parts before it give ({error}): the model does more "
                f"between them; make one layer of what belongs together"
            ) from error
    same = isinstance(whole, Tensor) and isinstance(chained, Tensor) and whole.shape == chained.shape
    if not same or not torch.allclose(whole, chained, rtol=1e-4, atol=1e-6):
        raise ValueError(
            "split: the parts one after the other give something else than the model: it does more than apply them in "
            "this order (a function between them, a skip connection, several inputs); make modules of that"
        )


# ---- a task in a file


def load_task(spec: str) -> Task:
    """The task that a function without arguments makes in a file: "file.py:make_task". Runs the file."""
    name, _, function = spec.rpartition(":")
    path = Path(name)
    if not path.is_file() or path.suffix != ".py":
        raise FileNotFoundError(f"--task {spec}: no file {name}: give path.py:function, or a built-in task's name")
    module_spec = importlib.util.spec_from_file_location(f"own_task_in_{path.stem}", path)
    module = sys.modules[module_spec.name] = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # ranks cannot import it
    make = getattr(module, function, None)
    if not callable(make):
        raise ValueError(
            f"--task {spec}: {path.name} has no function {function!r}: give one that returns own_task(...)"
        )
    task = make()
    if not isinstance(task, Task):
        raise TypeError(f"--task {spec}: {function} gives a {type(task).__name__}: return labkit.own_task(...)")
    return task
