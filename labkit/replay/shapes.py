"""Sizes of the built-in tasks, as far as syncs need them: parameters of a layer, what it hands on, what tp sums.

In: a Plan. Out: a `LayerShape` for each named layer. Mirrors the modules of engine.tasks, which torch builds; a test
compares the two. A task of one's own has no sizes here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from labkit.plan import Plan

_VOCABULARY = 128
_ITEM_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}


@dataclass(frozen=True)
class LayerShape:
    """One layer. Elements are per sample; `tensors` are its parameters', of which tp ranks share `num_cut`.

    forward_syncs, backward_syncs: what tensor parallelism does at its end, as (op, elements per sample)
    summed: elements of parameters whose gradients tp ranks sum by themselves (sequence parallelism: the norms')
    """

    name: str
    tensors: tuple[int, ...]
    output_elements: int
    num_cut: int = 0
    forward_syncs: tuple[tuple[str, int], ...] = ()
    backward_syncs: tuple[tuple[str, int], ...] = ()
    summed: tuple[int, ...] = ()

    @property
    def num_params(self) -> int:
        """Of the whole layer."""
        return sum(self.tensors)

    def local_params(self, tp: int) -> int:
        """Parameters that one tp rank holds."""
        return self.num_params - self.num_cut + self.num_cut // tp


def item_bytes(plan: Plan) -> int:
    """Bytes of one number."""
    return _ITEM_BYTES[plan.dtype]


def layer_names(plan: Plan, captured: tuple[str, ...]) -> tuple[str, ...]:
    """The named layers; of a task of one's own, those that were captured."""
    shapes = layer_shapes(plan)
    return tuple(shape.name for shape in shapes) if shapes else captured


def layer_shapes(plan: Plan) -> tuple[LayerShape, ...] | None:
    """The layers of a built-in task without tp's cuts; None for a task of one's own."""
    makers = {"digits": _digits, "digits_cnn": _digits_cnn, "chars": _chars}
    return makers[plan.task](plan) if plan.task in makers else None


def stage_positions(plan: Plan, num_layers: int) -> list[range]:
    """Positions of every stage's layers; those before and after the equal ones go with the first and last stage."""
    before = 1 if num_layers > plan.layers else 0
    ends = [before + sum(plan.layers_of_stage[: i + 1]) for i in range(plan.num_stages)]
    ends[-1] = num_layers
    return [range(start, end) for start, end in zip([0, *ends[:-1]], ends)]


def stage_shapes(plan: Plan) -> list[list[LayerShape]] | None:
    """The layers of every stage, cut for the plan's tp; None for a task of one's own."""
    shapes = layer_shapes(plan)
    if shapes is None:
        return None
    stages = [[shapes[i] for i in positions] for positions in stage_positions(plan, len(shapes))]
    if plan.tp > 1 and plan.task == "digits":
        stages = [_digits_cuts(plan, stage, first=index == 0) for index, stage in enumerate(stages)]
    if plan.tp > 1 and plan.task == "chars":
        stages = [[_chars_cut(plan, shape) for shape in stage] for stage in stages]
    return stages


def _digits(plan: Plan) -> tuple[LayerShape, ...]:
    sizes = [64, *[plan.width] * (plan.layers - 1), 10]
    return tuple(
        LayerShape(f"fc{i}", (num_in * num_out, num_out), num_out)
        for i, (num_in, num_out) in enumerate(pairwise(sizes))
    )


def _digits_cuts(plan: Plan, stage: list[LayerShape], *, first: bool) -> list[LayerShape]:
    """Column then row, two by two: one all-reduce forward after the row, one backward at the column."""
    found = []
    for i, shape in enumerate(stage):
        num_in = (shape.num_params - shape.output_elements) // shape.output_elements
        backward = (("all_reduce", num_in),) if not (first and i == 0) else ()
        alone = i == len(stage) - 1 and i % 2 == 0
        weight = num_in * shape.output_elements
        if alone and shape.output_elements % plan.tp:
            found.append(shape)  # a layer left over that does not divide stays whole
        elif alone:
            gathered = (("all_gather", shape.output_elements),)
            found.append(_cut(shape, weight + shape.output_elements, gathered, backward))
        elif i % 2 == 0:
            found.append(_cut(shape, weight + shape.output_elements, (), backward))
        else:
            found.append(_cut(shape, weight, (("all_reduce", shape.output_elements),), ()))
    return found


def _cut(
    shape: LayerShape, num_cut: int, forward: tuple[tuple[str, int], ...], backward: tuple[tuple[str, int], ...]
) -> LayerShape:
    return replace(shape, num_cut=num_cut, forward_syncs=forward, backward_syncs=backward)


def _digits_cnn(plan: Plan) -> tuple[LayerShape, ...]:
    width = plan.width
    layers = []
    for i in range(plan.layers - 1):
        num_in = width if i else 1
        layers.append(LayerShape(f"conv{i}", (num_in * width * 9, width), width * 64))
    num_in = 4 * (width if plan.layers > 1 else 1)
    return (*layers, LayerShape("head", (num_in * 10, 10), 10))


def _chars(plan: Plan) -> tuple[LayerShape, ...]:
    h, s = plan.width, plan.context
    norm = (h, h)
    attention, up, down = (h * h, h) * 4, (4 * h * h, 4 * h), (4 * h * h, h)
    block = (*norm, *attention, *norm, *up, *down)
    return (
        LayerShape("embedding", (_VOCABULARY * h, s * h), s * h),
        *(LayerShape(f"block{i}", block, s * h) for i in range(plan.layers)),
        LayerShape("head", (*norm, h * _VOCABULARY, _VOCABULARY), s * _VOCABULARY),
    )


def _chars_cut(plan: Plan, shape: LayerShape) -> LayerShape:
    """A block sums twice each way (Megatron-LM); the head gathers the scores and sums the gradient of its input."""
    h, s = plan.width, plan.context
    if plan.sequence_parallel:
        return _chars_sliced(plan, shape)
    if shape.name == "embedding":
        return shape
    if shape.name == "head":
        scores = (("all_gather", s * _VOCABULARY),)
        return _cut(shape, h * _VOCABULARY + _VOCABULARY, scores, (("all_reduce", s * h),))
    sums = (("all_reduce", s * h),) * 2
    return _cut(shape, 12 * h * h + 7 * h, sums, sums)


def _chars_sliced(plan: Plan, shape: LayerShape) -> LayerShape:
    """Sequence parallel: each sum becomes a gather before and a scatter after (Korthikanti et al. 2022, section 4.2.2).

    Between the blocks a rank holds its slice, so the head gathers its input, and the embedding its output's gradient.
    The norms see a slice each, so their gradients are sums over ranks.
    """
    h, s = plan.width, plan.context
    gather, scatter = ("all_gather", s * h), ("reduce_scatter", s * h)
    if shape.name == "embedding":
        return _cut(shape, 0, (), (gather,))
    if shape.name == "head":
        scores = ("all_gather", s * _VOCABULARY)
        whole = _cut(shape, h * _VOCABULARY + _VOCABULARY, (gather, scores), (scatter,))
        return replace(whole, summed=(h, h))
    both = (gather, scatter, gather, scatter)
    return replace(_cut(shape, 12 * h * h + 7 * h, both, both), summed=(h,) * 4)
