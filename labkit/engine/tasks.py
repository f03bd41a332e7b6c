"""What is trained: models as ordered, named layers, their data and their loss.

In: a Plan. Out: a `Task`. A user's own task is the same dataclass, built from their own modules (`own`).
Layers are built one by one from (seed, position), so a rank that holds layers 4 to 7 gets the very weights the serial
run has there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.digits import digits
from labkit.engine import data
from labkit.engine.trial import try_layers, why_not_cut
from labkit.plan import Plan, PlanError

Cut = str
"""How tensor parallelism treats a module: a linear layer is cut by "column", "row" or "gather" (column, the results
concatenated); "share" marks a module whose input several "column_shared" layers use, so its gradient is summed once."""


@dataclass(frozen=True)
class Task:
    """A model as named layers applied one after the other, with data and loss.

    names: the layers in order. build: position -> module. batch: dataset indices -> (input, target).
    loss: (output, target) -> scalar, the mean over the samples. cuts: names of the layers one rank holds -> path of
    each linear layer to cut -> how; None cuts every linear layer whose outputs divide.
    """

    names: tuple[str, ...]
    build: Callable[[int], nn.Module]
    batch: Callable[[np.ndarray], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]
    num_samples: int
    cuts: Callable[[Sequence[str]], dict[str, Cut]] | None = None
    sequence_parallel: Callable[[Sequence[str]], dict[str, str]] | None = None

    def check(self, plan: Plan) -> None:
        """Refuse a plan that does not fit these layers, and layers that do not fit each other."""
        if len(self.names) != plan.layers:
            raise PlanError(
                f"plan.layers is {plan.layers}, but the task has {len(self.names)} layers "
                f"({', '.join(self.names)}): set layers={len(self.names)}"
            )
        modules = {name: self.build(i).to(getattr(torch, plan.dtype)) for i, name in enumerate(self.names)}
        if plan.tp > 1 and not any(cuttable_linears(module, plan.tp) for module in modules.values()):
            raise PlanError(
                f"tp {plan.tp}: no linear layer whose outputs divide by {plan.tp} in {why_not_cut(modules, plan.tp)}: "
                f"use dp or pp for this model, or another tp"
            )
        self._try(modules, plan)

    def _try(self, modules: Mapping[str, nn.Module], plan: Plan) -> None:
        size = plan.replica_batch // plan.microbatches
        try:
            x, target = self.batch(sample_order(plan, self, 0)[:size])
            given = (len(x), len(target))
        except Exception:
            return  # the ranks say so, with the line in the user's code
        if given == (size, size):
            x = x.to(getattr(torch, plan.dtype)) if x.is_floating_point() else x
            try_layers(modules, x, target, self.loss)


def cuttable_linears(module: nn.Module, tp: int) -> list[str]:
    """Paths of the linear layers inside a module whose outputs divide over `tp` ranks."""
    linears = ((path, part) for path, part in module.named_modules() if isinstance(part, nn.Linear))
    return [path for path, linear in linears if linear.out_features % tp == 0]


def task_of(plan: Plan) -> Task:
    """The built-in task a plan names."""
    return {"digits": _digits, "digits_cnn": _digits_cnn, "chars": _chars}[plan.task](plan)


def sample_order(plan: Plan, task: Task, step: int) -> np.ndarray:
    """Dataset indices of the global batch of `step`: shuffled by the plan's seed, each epoch anew. (global_batch,)"""
    first, size = step * plan.global_batch, task.num_samples
    epochs = range(first // size, (first + plan.global_batch - 1) // size + 1)
    stream = np.concatenate([np.random.default_rng([plan.seed, epoch]).permutation(size) for epoch in epochs])
    start = first - epochs[0] * size
    return stream[start : start + plan.global_batch]


def _seeded(plan: Plan, make: Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    def build(position: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed * 1_000_003 + position)
            return make(position)

    return build


# ---- digits


class DigitsLayer(nn.Module):
    """One fully connected layer; all but the last end in a ReLU. (b, in) -> (b, out)"""

    def __init__(self, num_in: int, num_out: int, *, last: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(num_in, num_out)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y if self.last else F.relu(y)


def _digits(plan: Plan) -> Task:
    sizes = [64, *[plan.width] * (plan.layers - 1), 10]

    def make(position: int) -> nn.Module:
        return DigitsLayer(sizes[position], sizes[position + 1], last=position == plan.layers - 1)

    names = tuple(f"fc{i}" for i in range(plan.layers))
    outputs = {name: sizes[i + 1] for i, name in enumerate(names)}

    def cuts(held: Sequence[str]) -> dict[str, Cut]:
        return _pairs(held, outputs, plan.tp)

    return Task(names, _seeded(plan, make), _digits_batch, F.cross_entropy, 1797, cuts)


def _pairs(held: Sequence[str], outputs: dict[str, int], tp: int) -> dict[str, Cut]:
    """Column then row, two by two, so that one all-reduce serves two layers; a layer left over is gathered."""
    cuts: dict[str, Cut] = {}
    for first, second in zip(held[::2], held[1::2], strict=False):
        cuts[f"{first}.linear"], cuts[f"{second}.linear"] = "column", "row"
    if len(held) % 2 and outputs[held[-1]] % tp == 0:
        cuts[f"{held[-1]}.linear"] = "gather"
    return cuts


def _digits_batch(indices: np.ndarray) -> tuple[Tensor, Tensor]:
    images, labels = digits()
    return torch.from_numpy(images[indices]), torch.from_numpy(labels[indices])


class ConvLayer(nn.Module):
    """3 x 3 convolution and ReLU at full resolution. (b, c, 8, 8) -> (b, out, 8, 8); the first takes (b, 64)."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(num_in, num_out, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x.view(-1, 1, 8, 8) if x.dim() == 2 else x))


class ConvHead(nn.Module):
    """Mean over each of four quarters of the image, then a linear layer. (b, c, 8, 8) -> (b, 10)"""

    def __init__(self, num_in: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_in * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 1, 8, 8) if x.dim() == 2 else x
        return self.linear(F.avg_pool2d(x, 4).flatten(1))


def _digits_cnn(plan: Plan) -> Task:
    def make(position: int) -> nn.Module:
        num_in = plan.width if position else 1
        return ConvHead(num_in) if position == plan.layers - 1 else ConvLayer(num_in, plan.width)

    names = (*(f"conv{i}" for i in range(plan.layers - 1)), "head")
    return Task(names, _seeded(plan, make), _digits_batch, F.cross_entropy, 1797)


# ---- chars

VOCABULARY = 128  # ASCII


class Embedding(nn.Module):
    """Characters and their places as vectors. (b, s) -> (b, s, h)"""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(context, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))


class Attention(nn.Module):
    """Causal self-attention. (b, s, h) -> (b, s, h). Cut by heads, each rank holds q, k, v of its own heads."""

    def __init__(self, width: int, head_size: int) -> None:
        super().__init__()
        self.head_size = head_size
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self._heads(linear(x)) for linear in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (b, s, n * d) -> (b, n, s, d)


class Block(nn.Module):
    """A transformer block, norms first. (b, s, h) -> (b, s, h)"""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, width // heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Head(nn.Module):
    """Scores of the next character. (b, s, h) -> (b, s, vocabulary)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


def _chars(plan: Plan) -> Task:
    names = ("embedding", *(f"block{i}" for i in range(plan.layers)), "head")

    def make(position: int) -> nn.Module:
        if position == 0:
            return Embedding(plan.context, plan.width)
        return Head(plan.width) if position == len(names) - 1 else Block(plan.width, plan.heads)

    def batch(indices: np.ndarray) -> tuple[Tensor, Tensor]:
        windows = data.text()[indices[:, None] * plan.context + np.arange(plan.context + 1)]
        codes = torch.from_numpy(windows.astype(np.int64))
        return codes[:, :-1], codes[:, 1:]

    num_samples = (len(data.text()) - 1) // plan.context
    return Task(names, _seeded(plan, make), batch, _chars_loss, num_samples, _chars_cuts, _chars_sequence_parallel)


def _chars_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def _chars_cuts(held: Sequence[str]) -> dict[str, Cut]:
    cuts: dict[str, Cut] = {}
    for name in held:
        if name.startswith("block"):
            cuts[f"{name}.attention"] = "share"
            cuts |= {f"{name}.attention.{part}": "column_shared" for part in "qkv"}
            cuts |= {f"{name}.attention.out": "row", f"{name}.up": "column", f"{name}.down": "row"}
        elif name == "head":
            cuts[f"{name}.linear"] = "gather"
    return cuts


def _chars_sequence_parallel(held: Sequence[str]) -> dict[str, str]:
    """Which modules work on a slice of the sequence ("norm"), or hand one on ("slice")."""
    styles: dict[str, str] = {}
    for name in held:
        if name.startswith("block"):
            styles |= {f"{name}.norm1": "norm", f"{name}.norm2": "norm"}
        else:
            styles |= {f"{name}.norm": "norm"} if name == "head" else {name: "slice"}
    return styles
