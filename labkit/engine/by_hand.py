"""The teaching twins: what torch's engines do, written out in a few lines each, and tested equal to them.

In: tensors and a process group. Out: the same numbers as `DistributedDataParallel`, `all_reduce` and DTensor's linear
layers. Slower and simpler, so that every send can be seen.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

Group = dist.ProcessGroup

# ---- all-reduce from messages; all work in place on any contiguous tensor and leave the *sum* on every rank


def ring_all_reduce(tensor: Tensor, group: Group) -> None:
    """Each rank sends 2 (n - 1) chunks of 1/n to its right neighbour: first sums travel, then results.

    Every link carries 2 (n - 1)/n of the tensor, however many ranks there are.
    """
    rank, n = group.rank(), group.size()
    chunks = list(tensor.view(-1).tensor_split(n))
    right, left = (rank + 1) % n, (rank - 1) % n
    for step in range(n - 1):  # reduce-scatter: afterwards chunk (rank + 1) % n is complete here
        arriving = torch.empty_like(chunks[(rank - step - 1) % n])
        _exchange(chunks[(rank - step) % n], right, arriving, left, group)
        chunks[(rank - step - 1) % n] += arriving
    for step in range(n - 1):  # all-gather
        _exchange(chunks[(rank - step + 1) % n], right, chunks[(rank - step) % n], left, group)


def tree_all_reduce(tensor: Tensor, group: Group) -> None:
    """Sums climb a binary tree to rank 0 and come down again: 2 log2(n) steps, each with the whole tensor."""
    rank, n = group.rank(), group.size()
    distance = 1
    while distance < n and rank % (2 * distance) == 0:
        if rank + distance < n:
            tensor += _receive(tensor, rank + distance, group)
        distance *= 2
    if rank:
        parent = rank - (rank & -rank)
        _send(tensor, parent, group)
        tensor.copy_(_receive(tensor, parent, group))
    children = [rank + d for d in _powers_below(rank & -rank if rank else n) if rank + d < n]
    for child in reversed(children):
        _send(tensor, child, group)


def gather_all_reduce(tensor: Tensor, group: Group) -> None:
    """Everyone sends everything to rank 0, which adds it up and sends it back: n - 1 times the tensor on one link."""
    rank, n = group.rank(), group.size()
    if rank == 0:
        for other in range(1, n):
            tensor += _receive(tensor, other, group)
        for other in range(1, n):
            _send(tensor, other, group)
    else:
        _send(tensor, 0, group)
        tensor.copy_(_receive(tensor, 0, group))


def _exchange(outgoing: Tensor, dst: int, incoming: Tensor, src: int, group: Group) -> None:
    works = [group.send([outgoing.contiguous()], dst, 0)] if outgoing.numel() else []
    works += [group.recv([incoming], src, 0)] if incoming.numel() else []
    for work in reversed(works):
        work.wait()


def _send(tensor: Tensor, dst: int, group: Group) -> None:
    group.send([tensor], dst, 0).wait()


def _receive(like: Tensor, src: int, group: Group) -> Tensor:
    incoming = torch.empty_like(like)
    group.recv([incoming], src, 0).wait()
    return incoming


def _powers_below(limit: int) -> list[int]:
    return [1 << i for i in range(limit.bit_length()) if 1 << i < limit]


# ---- data parallelism


def naive_average(module: nn.Module, group: Group) -> None:
    """One all-reduce for every parameter's gradient, after backward: no buckets, no overlap."""
    for grad in _grads(module):
        dist.all_reduce(grad, group=group)
        grad /= group.size()


def _grads(module: nn.Module) -> list[Tensor]:
    """Of all parameters that are trained."""
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def _average_with(all_reduce: Callable[[Tensor, Group], None]) -> Callable[[nn.Module, Group], None]:
    """All gradients in one flat tensor, summed by `all_reduce` and divided."""

    def average(module: nn.Module, group: Group) -> None:
        grads = _grads(module)
        flat = torch.cat([grad.view(-1) for grad in grads])
        all_reduce(flat, group)
        flat /= group.size()
        for grad, piece in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
            grad.copy_(piece.view_as(grad))

    return average


def _no_average(module: nn.Module, group: Group) -> None:
    """Synchronization off: every replica goes its own way."""


AVERAGES: dict[str, Callable[[nn.Module, Group], None]] = {
    "naive": naive_average,
    "ring": _average_with(ring_all_reduce),
    "tree": _average_with(tree_all_reduce),
    "gather": _average_with(gather_all_reduce),
    "off": _no_average,
}
"""How replicas average their gradients, by the plan's `grad_sync`."""


# ---- tensor parallelism (Shoeybi et al. 2019, Megatron-LM, section 3: the operators f and g)


class _CopyIn(torch.autograd.Function):
    """f: the same input on all ranks; backward adds up what each rank's part of the weights contributes."""

    @staticmethod
    def forward(ctx: object, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _AddOut(torch.autograd.Function):
    """g: adds up the partial products of all ranks; backward hands the gradient through."""

    @staticmethod
    def forward(ctx: object, x: Tensor, group: Group) -> Tensor:
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Concatenate(torch.autograd.Function):
    """Sets the ranks' slices of the last dimension side by side; backward takes this rank's slice."""

    @staticmethod
    def forward(ctx: object, x: Tensor, group: Group) -> Tensor:
        ctx.group, ctx.width = group, x.shape[-1]
        slices = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(slices, x.contiguous(), group=group)
        return torch.cat(slices, dim=-1)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
        return grad.narrow(-1, ctx.group.rank() * ctx.width, ctx.width).contiguous(), None


class ColumnLinear(nn.Module):
    """y = x W^T with the *rows* of torch's weight (out, in) cut over the ranks.

    Megatron calls this column parallel, after W^T. Output: this rank's slice (.., out / n), or all of it if `gather`.
    `copy=False` where the input was copied in already, see `share_input`.
    """

    def __init__(self, whole: nn.Linear, group: Group, *, gather: bool = False, copy: bool = True) -> None:
        super().__init__()
        self.group, self.gather, self.copy = group, gather, copy
        self.weight, self.bias = _slice(whole.weight, group, dim=0), _slice(whole.bias, group, dim=0)

    def forward(self, x: Tensor) -> Tensor:
        x = _CopyIn.apply(x, self.group) if self.copy and x.requires_grad else x
        y = F.linear(x, self.weight, self.bias)
        return _Concatenate.apply(y, self.group) if self.gather else y


class RowLinear(nn.Module):
    """y = x W^T with the *columns* of torch's weight cut: each rank multiplies its slice of x, and all are added."""

    def __init__(self, whole: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        self.weight, self.bias = _slice(whole.weight, group, dim=1), whole.bias

    def forward(self, x: Tensor) -> Tensor:
        y = _AddOut.apply(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias


def share_input(module: nn.Module, group: Group) -> None:
    """Copy the module's input in once for all column-cut layers inside it, so its gradient is added up once."""
    module.register_forward_pre_hook(lambda _, args: (_CopyIn.apply(args[0], group), *args[1:]))


def _slice(parameter: nn.Parameter | None, group: Group, *, dim: int) -> nn.Parameter | None:
    if parameter is None:  # a layer without bias
        return None
    return nn.Parameter(parameter.detach().chunk(group.size(), dim=dim)[group.rank()].clone())


def cut_dim(module: nn.Module, name: str) -> int | None:
    """Along which dimension a hand-cut parameter is a slice of the whole; None if it is whole."""
    if isinstance(module, ColumnLinear):
        return 0
    return 1 if isinstance(module, RowLinear) and name == "weight" else None
