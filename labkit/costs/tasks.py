"""Bytes of labkit's own small tasks, rank by rank: what a captured run reports, computed.

In: a Plan with task digits, digits_cnn or chars. Out: per rank the most bytes of parameters, gradients, optimizer state
and activations that its events show. Counted from what torch's autograd keeps: a linear layer its input, ReLU its
output, GELU its input, a norm its input and two numbers a row, attention q, k, v, its output and one number per head
and row, the loss its log-probabilities and targets. Float32 or as `plan.dtype` says.

digits, 4 layers of 64, batch 32, one rank: 13,130 parameters; 32 x (64 + 3 x 64 + 10 floats, and a target of 8 bytes)
and one number: 34,308 bytes of activations.

Where backward is split (zbv, interleaved_zb, dualpipev, zb_h1, zb_h2), torch's weight half holds on to the graph from
the stage's last layer with weights upwards, so its input half frees only what comes after that layer: a last ReLU's
output and the loss. The first stage needs no gradient of its input and frees all in the weight half. At the turn of a V
one stage's output is the next one's input, kept once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from labkit import schedule
from labkit.plan import Plan
from labkit.schedule.action import Kind

_INDEX_BYTES = 8
_VOCABULARY = 128
_ELEMENT_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}


@dataclass(frozen=True)
class TaskMemory:
    """Most bytes one rank holds of each kind."""

    param_bytes: int
    grad_bytes: int
    optimizer_bytes: int
    activation_bytes: int


@dataclass(frozen=True)
class _Layer:
    """A layer as one rank holds it: shapes of its parameters; numbers kept for backward."""

    shapes: tuple[tuple[int, ...], ...]
    kept: float
    """Elements kept, besides the input; for a whole microbatch."""
    given: float
    """Elements of its input."""
    given_is_indices: bool = False
    extra_bytes: int = 0
    """Kept besides, in other types: indices, attention's row sums."""
    after: float = 0
    """Elements of `kept` that come after its last weights."""


def task_memory(plan: Plan) -> list[TaskMemory]:
    """Of every rank, ascending."""
    makers = {"digits": _digits, "digits_cnn": _digits_cnn, "chars": _chars}
    if plan.task not in makers:
        raise ValueError(f"task {plan.task!r}: memory is known for {', '.join(makers)}; run an own task to see its own")
    stages = [makers[plan.task](plan, held) for held in _stage_positions(plan)]
    return [_rank_memory(plan, stages, plan.mesh.coordinate(rank)) for rank in range(plan.num_ranks)]


def _stage_positions(plan: Plan) -> list[range]:
    """Positions of the equal layers of every stage."""
    ends = [sum(plan.layers_of_stage[: i + 1]) for i in range(plan.num_stages)]
    return [range(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _rank_memory(plan: Plan, stages: list[list[_Layer]], place: dict[str, int]) -> TaskMemory:
    order = _order(plan)
    mine = [layer for stage in order.stages_of(place["pp"]) for layer in stages[stage]]
    shapes = [shape for layer in mine for shape in layer.shapes]
    size = _ELEMENT_BYTES[plan.dtype]
    whole = size * sum(map(prod, shapes))
    shard = size * sum(prod(_shard(shape, plan.dp, place["dp"])) for shape in shapes)
    layers = [_whole_and_shard(layer.shapes, plan, place["dp"]) for layer in mine]
    # FSDP gathers the weights of one layer at a time; ZeRO 2 keeps all gathered, and so does torch's pipeline.
    one_by_one = plan.zero == 3 and plan.pp == 1
    gathered = max(w for w, _ in layers) if one_by_one else whole
    held = shard + gathered if plan.zero >= 2 else whole
    # Gradients are cut down as each layer's backward ends; only the first layer, whose input needs no gradient, waits
    # for the end of the whole backward. A pipeline, and ZeRO 2 with several microbatches, adds up whole ones first.
    cut_down = one_by_one or (plan.zero == 2 and plan.pp == plan.microbatches == 1)
    first_whole, first_shard = layers[0]
    gradients = shard + first_whole - first_shard if cut_down else whole
    activations = _peak(order, place["pp"], _parts(plan, stages, order.stages_of(place["pp"])))
    return TaskMemory(held, gradients, _optimizer_bytes(plan, shapes, place["dp"]), activations)


def _whole_and_shard(shapes: Sequence[tuple[int, ...]], plan: Plan, dp_rank: int) -> tuple[int, int]:
    """Bytes of one layer's weights, and of this rank's shard of them."""
    size = _ELEMENT_BYTES[plan.dtype]
    return size * sum(map(prod, shapes)), size * sum(prod(_shard(shape, plan.dp, dp_rank)) for shape in shapes)


def _order(plan: Plan) -> schedule.Schedule:
    """The pipeline's schedule; without one, each microbatch forward then backward."""
    return plan.pipeline or schedule.generate("1f1b", 1, plan.microbatches, 1)


def _shard(shape: tuple[int, ...], num_ranks: int, rank: int) -> tuple[int, ...]:
    """FSDP2 cuts rows into equal chunks, the last ones smaller or empty: 10 rows over 4 ranks are 3, 3, 3, 1."""
    chunk = -(-shape[0] // num_ranks)
    return max(0, min(chunk, shape[0] - rank * chunk)), *shape[1:]


def _optimizer_bytes(plan: Plan, shapes: Sequence[tuple[int, ...]], dp_rank: int) -> int:
    """Adam: two moments and a 4-byte step count a tensor. SGD here has no momentum, so nothing."""
    if plan.optimizer == "sgd":
        return 0
    mine = list(map(prod, shapes))
    if plan.zero == 1:
        mine = _greedy_parts(mine, plan.dp)[dp_rank]
    elif plan.zero >= 2:
        mine = [prod(_shard(shape, plan.dp, dp_rank)) for shape in shapes]
    return sum(2 * _ELEMENT_BYTES[plan.dtype] * count + 4 for count in mine)


def _greedy_parts(counts: Sequence[int], num_ranks: int) -> list[list[int]]:
    """ZeroRedundancyOptimizer's: whole tensors, largest first, each to the rank with least so far."""
    parts: list[list[int]] = [[] for _ in range(num_ranks)]
    for count in sorted(counts, reverse=True):
        min(parts, key=sum).append(count)
    return parts


_HALVES = {Kind.BACKWARD: (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)}
_Part = tuple[int, set[tuple[int, Kind]]]
"""Bytes that a forward keeps, and the halves of backward (stage and kind) which must all have run to free them."""


def _peak(order: schedule.Schedule, rank: int, parts: dict[int, list[_Part]]) -> int:
    """Most bytes kept while a rank runs its order."""
    held: dict[int, list[_Part]] = {}
    now = most = 0
    for stage, kind, microbatch in order.orders[rank]:
        of_microbatch = held.setdefault(microbatch, [])
        if kind == Kind.FORWARD:
            of_microbatch += [(size, set(awaited)) for size, awaited in parts[stage]]
            now += sum(size for size, _ in parts[stage])
            most = max(most, now)
            continue
        for _, awaited in of_microbatch:
            awaited -= {(stage, half) for half in _HALVES.get(kind, (kind,))}
        now -= sum(size for size, awaited in of_microbatch if not awaited)
        held[microbatch] = [part for part in of_microbatch if part[1]]
    return most


def _parts(plan: Plan, stages: list[list[_Layer]], mine: Sequence[int]) -> dict[int, list[_Part]]:
    """What each of a rank's stages keeps of a microbatch. Where the next stage is the rank's too, they share a tensor.

    The first stage needs no gradient of its input, so torch leaves its whole backward to the weight half.
    """
    outputs = {i: 0 if plan.recompute else round(stages[i][-1].after * _ELEMENT_BYTES[plan.dtype]) for i in mine}
    parts: dict[int, list[_Part]] = {}
    for stage in mine:
        last = stage == plan.num_stages - 1
        early = _loss_bytes(plan) if last else outputs[stage]
        rest = _kept_bytes(plan, stages[stage], last) - early - outputs.get(stage - 1, 0)
        awaited = {(stage, Kind.BACKWARD_INPUT if stage else Kind.BACKWARD_WEIGHT)}
        awaited |= {(stage + 1, Kind.BACKWARD_WEIGHT)} if stage + 1 in mine else set()
        parts[stage] = [(early, awaited), (rest, {(stage, Kind.BACKWARD_WEIGHT)})]
    return parts


def _kept_bytes(plan: Plan, layers: list[_Layer], last: bool) -> int:
    """Of one stage and microbatch. With recomputation only the layers' inputs."""
    size, loss = _ELEMENT_BYTES[plan.dtype], _loss_bytes(plan) if last else 0
    if plan.recompute:
        return round(sum(layer.given * (_INDEX_BYTES if layer.given_is_indices else size) for layer in layers) + loss)
    kept = sum(layer.kept + (0 if layer.given_is_indices else layer.given) for layer in layers)
    return round(kept * size + sum(layer.extra_bytes for layer in layers) + loss)


def _loss_bytes(plan: Plan) -> int:
    """Log-probabilities, targets, and the sum of weights."""
    samples = plan.replica_batch // plan.microbatches
    rows, classes = (samples * plan.context, _VOCABULARY) if plan.task == "chars" else (samples, 10)
    size = _ELEMENT_BYTES[plan.dtype]
    return rows * (classes * size + _INDEX_BYTES) + size


# ---- the tasks, as engine.tasks builds and engine.parallelize cuts them


def _digits(plan: Plan, held: range) -> list[_Layer]:
    """Linear and ReLU. A stage's last ReLU keeps its output; the others' outputs are the next layer's input."""
    b, sizes = plan.replica_batch // plan.microbatches, [64, *[plan.width] * (plan.layers - 1), 10]
    layers = []
    for place, position in enumerate(held):
        cut = _digits_cut(plan, held, place, sizes[position + 1])
        given = sizes[position] // (plan.tp if cut == "row" else 1)
        ends_stage = position == held[-1] and position != plan.layers - 1
        kept = b * sizes[position + 1] if ends_stage else 0
        if ends_stage and cut == "column":
            kept //= plan.tp
        layers.append(_Layer(_linear(sizes[position], sizes[position + 1], cut, plan.tp), kept, b * given, after=kept))
    return layers


def _digits_cut(plan: Plan, held: range, place: int, outputs: int) -> str:
    """Column and row in turns; a layer left over is cut by its outputs and gathered, if they divide."""
    if plan.tp == 1:
        return "whole"
    if place == len(held) - 1 and len(held) % 2:
        return "gather" if outputs % plan.tp == 0 else "whole"
    return "row" if place % 2 else "column"


def _linear(num_in: int, num_out: int, cut: str, tp: int) -> tuple[tuple[int, ...], ...]:
    """Weight (out, in) and bias; a row-cut layer keeps its whole bias."""
    if cut == "row":
        return (num_out, num_in // tp), (num_out,)
    rows = num_out // tp if cut in ("column", "gather") else num_out
    return (rows, num_in), (rows,)


def _digits_cnn(plan: Plan, held: range) -> list[_Layer]:
    """Convolutions with ReLU on 8 x 8, then a pooled linear layer, which keeps both its input and the pooled one."""
    b, w, last = plan.replica_batch // plan.microbatches, plan.width, plan.layers - 1
    layers = []
    for position in held:
        planes = w if position else 1
        given = b * planes * 64
        if position == last:
            layers.append(_Layer(((10, 4 * planes), (10,)), b * 4 * planes, given))
        else:
            kept = b * w * 64 if position == held[-1] else 0
            layers.append(_Layer(((w, planes, 3, 3), (w,)), kept, given, after=kept))
    return layers


def _chars(plan: Plan, held: range) -> list[_Layer]:
    """Embedding before the first block, head after the last."""
    b, s, w = plan.replica_batch // plan.microbatches, plan.context, plan.width
    rows = b * s
    layers = [_block(plan, rows) for _ in held]
    if held[0] == 0:
        shapes = ((_VOCABULARY, w), (s, w))
        layers.insert(0, _Layer(shapes, 0, rows, given_is_indices=True, extra_bytes=(rows + s) * _INDEX_BYTES))
    if held[-1] == plan.layers - 1:
        layers.append(_chars_head(plan, rows))
    return layers


def _block(plan: Plan, rows: int) -> _Layer:
    """Norm, attention, norm, MLP. Sequence parallelism cuts what the norms take; the gathered inputs stay whole."""
    w, t = plan.width, plan.tp
    cut = t if plan.sequence_parallel else 1
    column, row = ("column", "row") if t > 1 else ("whole", "whole")
    shapes = (
        *[(w,)] * 4,
        *_linear(w, w, column, t) * 3,
        *_linear(w, w, row, t),
        *_linear(w, 4 * w, column, t),
        *_linear(4 * w, w, row, t),
    )
    norms = rows * (2 * w + w / cut + 4 / cut)  # both outputs, the second's input, two numbers a row and norm
    attention = rows * 4 * w / t
    row_sums = round(rows * plan.heads / t) * 4  # float32 whatever the dtype
    return _Layer(shapes, norms + attention + rows * 8 * w / t, rows * w / cut, extra_bytes=row_sums)


def _chars_head(plan: Plan, rows: int) -> _Layer:
    w, t = plan.width, plan.tp
    cut = t if plan.sequence_parallel else 1
    shapes = ((w,), (w,), *_linear(w, _VOCABULARY, "gather" if t > 1 else "whole", t))
    return _Layer(shapes, rows * (w + 2 / cut), rows * w / cut)
