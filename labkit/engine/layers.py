"""Which modules of an unknown model are its layers.

In: any `nn.Module`. Out: named modules that together cover it without overlap: the elements of its lists and sequences
(transformer blocks, say), and whatever else stands beside them.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.nn.parallel import DistributedDataParallel

_LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def layers_of(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """(name, module) of every layer. A model without children is its own only layer, named after its class.

    A compiled model is one layer: what torch made of it has no modules any more.

    GPT(embed, blocks=ModuleList([Block, Block]), head) -> embed, blocks.0, blocks.1, head
    """
    if _is_compiled(root):
        return [(type(root._orig_mod).__name__.lower(), root)]
    root = root.module if isinstance(root, DistributedDataParallel) else root
    return list(_inside("", root)) or [(type(root).__name__.lower(), root)]


def _inside(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A list's elements are layers; beside lists, a child that holds a list of blocks is a model in a model."""
    for name, child in module.named_children():
        path = f"{prefix}.{name}" if prefix else name
        is_list = isinstance(child, _LISTS) or (_holds_blocks(child) and not _is_compiled(child))
        if is_list and not isinstance(module, _LISTS):
            yield from _inside(path, child)
        else:
            yield path, child


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod")  # by its mark: its class would load torch's compiler


def _holds_blocks(module: nn.Module) -> bool:
    lists = (part for part in module.modules() if isinstance(part, _LISTS) and len(part) > 1)
    return any(len({type(block) for block in part.children()}) == 1 for part in lists)
