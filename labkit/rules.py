"""Which plans can run: what is filled in, what is refused, each rule with the value, the rule and the way out.

In: a Plan being made. Out: its defaults set, or a PlanError. Includes what torch would refuse only inside a rank, and
what it would compute wrongly without a word.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from labkit import quantity, schedule
from labkit.link import Link, as_link
from labkit.mesh import AXES
from labkit.pace import as_pace
from labkit.task import TASKS

if TYPE_CHECKING:
    from labkit.plan import Plan

OPTIMIZERS = {"sgd": 0.1, "adam": 3e-3, "adamw": 3e-3}
"""Optimizers and the learning rate each takes when the plan gives none."""

CHOICES = {
    "task": tuple(TASKS),
    "optimizer": tuple(OPTIMIZERS),
    "dtype": ("float32", "float64", "bfloat16"),
    "backend": ("gloo", "nccl"),
    "grad_sync": ("engine", "naive", "ring", "tree", "gather", "off"),
    "tensor": ("dtensor", "by_hand"),
}
RECORD = ("compute", "sync", "memory")
MAX_LAYERS = 64


class PlanError(ValueError):
    """A plan that cannot run, and what to change."""


# ---- normalise: what people write -> what a plan holds


def normalise(plan: Plan) -> None:
    """Fill in defaults that depend on other fields and parse text forms. The only place that sets fields."""

    def put(name: str, value: Any) -> None:
        object.__setattr__(plan, name, value)

    try:
        if plan.pace is not None:
            put("pace", as_pace(plan.pace))
        if plan.slow is not None:
            put("slow", _slow_ranks(plan.slow))
        if plan.link is not None:
            put("link", _links(plan.link) or None)
        if isinstance(plan.value_limit_bytes, str):
            put("value_limit_bytes", quantity.num_bytes(plan.value_limit_bytes))
    except (ValueError, TypeError, AttributeError) as error:
        raise PlanError(str(error)) from None
    if isinstance(plan.record, str | list | tuple):
        put("record", tuple(plan.record.split(",") if isinstance(plan.record, str) and plan.record else plan.record))
    if isinstance(plan.split, list):
        put("split", tuple(plan.split))
    _check_types(plan)
    if plan.order is not None:
        _take_order(plan, put)
    if plan.schedule is None and plan.pp > 1:
        put("schedule", "1f1b")
    if plan.virtual is None:
        put("virtual", schedule.default_virtual(plan.schedule) if plan.schedule in schedule.SCHEDULES else 1)
    if plan.microbatches is None:
        known = plan.pp > 1 and plan.schedule in schedule.SCHEDULES
        put("microbatches", schedule.default_microbatches(plan.schedule, plan.pp, plan.virtual) if known else 1)
    if plan.lr is None:
        put("lr", OPTIMIZERS.get(plan.optimizer, 0.1))


def _take_order(plan: Plan, put: Callable[[str, Any], None]) -> None:
    """An own schedule says how many ranks, stages and microbatches there are; what the plan says must agree."""
    if plan.schedule not in (None, "own"):
        raise PlanError(f"schedule {plan.schedule!r} and an order are both given: leave one out")
    try:
        own = schedule.Schedule.from_text(plan.order, name="own")
        schedule.check(own)
    except schedule.ScheduleError as error:
        raise PlanError(str(error)) from None
    virtual, odd = divmod(own.num_stages, own.num_ranks)
    says = {"pp": own.num_ranks, "microbatches": own.num_microbatches, "virtual": virtual}
    for name, value in says.items():
        given = getattr(plan, name)
        if given not in (None, value) and (name, given) != ("pp", 1):
            raise PlanError(f"{name} {given}, but the order has {value}: leave {name} out, or change the order")
        put(name, value)
    if odd or any(len(own.stages_of(rank)) != virtual for rank in range(own.num_ranks)):
        raise PlanError(
            f"the order gives {own.num_stages} stages to {own.num_ranks} ranks: torch needs the same number on each"
        )
    last = [a.microbatch for order in own.orders for a in order if str(a).startswith(f"{own.num_stages - 1}F")]
    if last != sorted(last):
        raise PlanError(
            f"the last stage runs its forwards in the order {last}: torch finds a microbatch's loss by its place, so "
            f"they must come as {sorted(last)} there"
        )
    put("schedule", "own")


def _slow_ranks(spec: Any) -> dict[int, float] | None:
    """{rank: factor} from "2=1.5,3=2" or a mapping; nothing: None."""
    pairs = dict(part.partition("=")[::2] for part in spec.split(",")) if isinstance(spec, str) and spec else spec
    try:
        return {int(rank): float(factor) for rank, factor in pairs.items()} or None if pairs else None
    except (ValueError, TypeError, AttributeError):
        raise PlanError(f"slow={spec!r}: give a factor for each slow rank, such as 2=1.5") from None


def _links(spec: Any) -> dict[str, Link]:
    """One link for all axes, or one per axis."""
    if not isinstance(spec, str | Link | Mapping):
        raise PlanError(f"link={spec!r}: give a preset's name, or latency=5us,bandwidth=25GB/s, or one for each axis")
    by_axis = isinstance(spec, Mapping) and not {"latency", "bandwidth", "latency_s", "bandwidth_bytes_s"} & set(spec)
    if by_axis and not set(spec) <= set(AXES):
        raise PlanError(f"link for {', '.join(sorted(set(spec) - set(AXES)))}: the axes are {', '.join(AXES)}")
    if by_axis:
        return {axis: as_link(link) for axis, link in spec.items()}
    return dict.fromkeys(AXES, as_link(spec))


_MANY = 2**40

_INTEGERS = {
    "layers": (1, 10**6), "width": (1, 10**6), "heads": (1, 10**4), "context": (1, 10**4), "dp": (1, 10**6),
    "tp": (1, 10**6), "pp": (1, 10**6), "zero": (0, _MANY), "microbatches": (1, 10**6), "virtual": (1, 10**4),
    "global_batch": (1, 10**7), "steps": (1, 10**9), "seed": (0, _MANY), "value_limit_bytes": (0, _MANY),
    "max_events": (1, _MANY), "max_ranks": (1, _MANY),
}  # fmt: skip
"""Whole-number fields, their least and their greatest value."""

_LARGEST_MODEL = 2_000_000_000  # parameters; four bytes each, and as many for gradients

_FLAGS = ("sequence_parallel", "recompute", "offload")
_POSITIVE = ("lr", "bucket_mb", "time_scale")


def _check_types(plan: Plan) -> None:
    _check_texts(plan)
    for name, (least, most) in _INTEGERS.items():
        value = getattr(plan, name)
        if value is None and name in ("microbatches", "virtual"):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise PlanError(f"{name}={value!r}: give a whole number of at least {least}, at most {most:,}")
    for name in _FLAGS:
        if not isinstance(getattr(plan, name), bool):
            raise PlanError(f"{name}={getattr(plan, name)!r}: give true or false")
    for name in _POSITIVE:
        value = getattr(plan, name)
        if value is None and name == "lr":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e30:
            raise PlanError(f"{name}={value!r}: give a finite number above 0, at most 1e30")
    if plan.bucket_mb > 1e6 or plan.time_scale > 1e9:
        raise PlanError(f"bucket_mb {plan.bucket_mb:g} is at most 1e6, time_scale {plan.time_scale:g} at most 1e9")


def _check_texts(plan: Plan) -> None:
    for name in (*CHOICES, "schedule", "order"):
        value = getattr(plan, name)
        if not isinstance(value, str) and not (value is None and name in ("schedule", "order")):
            raise PlanError(f"{name}={value!r}: give text")
    if not isinstance(plan.record, tuple) or not all(isinstance(item, str) for item in plan.record):
        raise PlanError(f"record={plan.record!r}: give some of {', '.join(RECORD)}")
    if plan.split is not None and not (
        isinstance(plan.split, tuple) and all(type(number) is int and number > 0 for number in plan.split)
    ):
        raise PlanError(f"split={plan.split!r}: give the number of layers of every stage, e.g. (3, 2, 2, 1)")


# ---- checks: one rule each


def _check_choices(plan: Plan) -> None:
    for name, known in CHOICES.items():
        value = getattr(plan, name)
        if value not in known:
            raise PlanError(f"unknown {name} {value!r}{suggest(value, known)}: known are {', '.join(known)}")
    if plan.schedule == "own" and plan.order is None:
        raise PlanError("schedule 'own' needs an order: a line of actions for each rank, such as 0F0,0B0")
    if plan.schedule is not None and plan.schedule not in (*schedule.SCHEDULES, "own"):
        hint = suggest(plan.schedule, schedule.SCHEDULES)
        raise PlanError(f"unknown schedule {plan.schedule!r}{hint}: known are {', '.join(schedule.SCHEDULES)}")
    if "memory" in plan.record and "compute" not in plan.record:
        raise PlanError("record memory: it is written on the events of compute, so record compute too")
    for item in plan.record:
        if item not in RECORD:
            raise PlanError(f"record {item!r}{suggest(item, RECORD)}: known are {', '.join(RECORD)}")


def _check_ranks(plan: Plan) -> None:
    if plan.num_ranks > plan.max_ranks:
        raise PlanError(
            f"dp {plan.dp} x tp {plan.tp} x pp {plan.pp} = {plan.num_ranks} ranks, but at most {plan.max_ranks} are "
            f"started on one machine: lower a degree, or raise max_ranks if the machine can bear it"
        )
    if plan.zero > 3:
        raise PlanError(f"zero {plan.zero}: the stages are 0 (DDP), 1, 2 and 3")


def _check_layers(plan: Plan) -> None:
    if plan.layers > MAX_LAYERS and plan.task != "own":
        raise PlanError(f"layers {plan.layers}: at most {MAX_LAYERS}")
    if plan.split is not None:
        if len(plan.split) != plan.num_stages or sum(plan.split) != plan.layers or min(plan.split) < 1:
            raise PlanError(
                f"split {plan.split} does not give each of {plan.num_stages} stages (pp {plan.pp} x virtual "
                f"{plan.virtual}) at least one of {plan.layers} layers: it needs {plan.num_stages} numbers that sum to "
                f"{plan.layers}"
            )
    elif plan.layers % plan.num_stages:
        fits = [p for p in range(1, plan.layers + 1) if plan.layers % (p * plan.virtual) == 0]
        raise PlanError(
            f"{plan.layers} layers do not split over pp {plan.pp} x {plan.virtual} stage(s) per rank = "
            f"{plan.num_stages} stages: choose pp {_either(fits)}, or layers "
            f"{_round_up(plan.layers, plan.num_stages)}, or give split="
        )


def _check_batch(plan: Plan) -> None:
    if plan.global_batch % plan.dp:
        raise PlanError(
            f"global_batch {plan.global_batch} does not divide over dp {plan.dp} replicas: choose "
            f"{_round_up(plan.global_batch, plan.dp * plan.microbatches)}"
        )
    if plan.replica_batch % plan.microbatches:
        raise PlanError(
            f"each replica's {plan.replica_batch} samples (global_batch {plan.global_batch} / dp {plan.dp}) do not "
            f"divide into {plan.microbatches} microbatches: choose global_batch "
            f"{_round_up(plan.global_batch, plan.dp * plan.microbatches)}"
        )


def _check_schedule(plan: Plan) -> None:
    if plan.pp == 1:
        if plan.schedule is not None:
            raise PlanError(f"schedule {plan.schedule!r} orders pipeline work, but pp is 1: set pp, or leave it out")
        if plan.virtual > 1:
            raise PlanError(f"virtual {plan.virtual} stages per rank need a pipeline, but pp is 1: set pp")
        return
    wrong = schedule.problem(plan.schedule, plan.pp, plan.microbatches, plan.virtual) if plan.order is None else None
    if wrong:
        raise PlanError(wrong)


def _check_tensor_parallel(plan: Plan) -> None:
    facts = TASKS[plan.task]
    if plan.sequence_parallel and plan.tp == 1:
        raise PlanError("sequence_parallel splits activations over the tp ranks, but tp is 1: set tp 2 or more")
    if plan.tp == 1:
        return
    if not facts.cuttable and plan.task != "own":
        fitting = [name for name, f in TASKS.items() if f.cuttable]
        raise PlanError(f"tp {plan.tp} cuts linear layers, but {plan.task} has none to cut: use {_either(fitting)}")
    if plan.task != "own" and plan.width % plan.tp:
        wider = _round_up(plan.width, plan.tp)
        raise PlanError(f"width {plan.width} does not divide over tp {plan.tp}: choose {wider}")
    if plan.sequence_parallel and not facts.sequence:
        fitting = [name for name, f in TASKS.items() if f.sequence]
        raise PlanError(f"sequence_parallel needs a sequence to split, {plan.task} has none: use {_either(fitting)}")
    if facts.sequence and plan.heads % plan.tp:
        raise PlanError(f"heads {plan.heads} do not divide over tp {plan.tp}: choose {_round_up(plan.heads, plan.tp)}")
    if plan.sequence_parallel and plan.context % plan.tp:
        raise PlanError(f"context {plan.context} does not divide over tp {plan.tp} ranks of sequence parallelism")
    if plan.tensor == "by_hand" and plan.task == "chars" and 128 % plan.tp:
        raise PlanError(f"tp {plan.tp} by hand cuts the head's 128 characters into equal parts: choose tp 2, 4 or 8")
    if plan.task == "digits" and plan.layers == 1 and 10 % plan.tp:
        raise PlanError(f"tp {plan.tp}: the only layer's 10 outputs do not divide: choose tp 2 or 5, or 2 layers")
    if plan.sequence_parallel and plan.tensor == "by_hand":
        raise PlanError("sequence_parallel is torch's: with tensor='by_hand' leave it out, or use tensor='dtensor'")


def _check_emulation(plan: Plan) -> None:
    if plan.backend == "nccl" and (plan.pace or plan.link):
        raise PlanError(
            "pace and link set speeds that a CPU run is held to; a GPU has its own: with backend nccl leave them out"
        )


def _check_slow(plan: Plan) -> None:
    for rank, factor in (plan.slow or {}).items():
        if plan.pace is None:
            raise PlanError("slow makes set durations longer: give a pace too, e.g. forward=20ms,backward=40ms")
        if not 0 <= rank < plan.num_ranks:
            raise PlanError(f"slow rank {rank}: the plan has ranks 0 to {plan.num_ranks - 1}")
        if not 1 <= factor <= 100:
            raise PlanError(f"slow rank {rank} by {factor:g}: give a factor from 1 to 100")


def _check_sizes(plan: Plan) -> None:
    per_layer = {"chars": 12, "digits_cnn": 9}.get(plan.task, 1) * plan.width**2
    if plan.task != "own" and per_layer * plan.layers > _LARGEST_MODEL:
        raise PlanError(
            f"width {plan.width} and {plan.layers} layers make about {per_layer * plan.layers:.1e} parameters: runs "
            f"here have at most {_LARGEST_MODEL:.0e}; choose a smaller width"
        )
    if plan.task == "chars" and plan.width % plan.heads:
        wider = _round_up(plan.width, plan.heads)
        raise PlanError(f"width {plan.width} does not divide into {plan.heads} heads: choose {wider}")


def _check_zero(plan: Plan) -> None:
    if plan.zero and plan.dp == 1:
        raise PlanError(f"zero {plan.zero} shares state between data parallel replicas, but dp is 1: set dp 2 or more")
    if plan.zero == 1 and plan.pp * plan.tp > 1:
        raise PlanError(
            "zero 1 (ZeroRedundancyOptimizer) takes plain parameters of DDP, not the DTensors of tp or a pipeline "
            "stage: use zero 2 with tp or pp, or dp alone"
        )
    if plan.zero == 3 and plan.splits_backward:
        raise PlanError(
            f"zero 3 frees gathered weights between the two halves of backward that schedule {plan.schedule!r} splits, "
            f"and torch then computes wrong gradients without a word: use zero 2, or a schedule with whole backwards"
        )
    if plan.offload and plan.zero < 2:
        raise PlanError(f"offload is FSDP2's, which zero 2 and 3 use; zero is {plan.zero}: set zero 2 or 3")


def _check_grad_sync(plan: Plan) -> None:
    if plan.grad_sync != "engine" and (plan.zero or plan.tp * plan.pp > 1 or plan.dp == 1):
        raise PlanError(
            f"grad_sync {plan.grad_sync!r} replaces DDP: it needs dp 2 or more, zero 0, tp 1 and pp 1 "
            f"(here dp {plan.dp}, zero {plan.zero}, tp {plan.tp}, pp {plan.pp})"
        )
    if plan.tensor == "by_hand" and (plan.tp == 1 or plan.zero):
        raise PlanError(
            f"tensor 'by_hand' cuts layers over tp ranks without DTensor: it needs tp 2 or more and zero 0 "
            f"(here tp {plan.tp}, zero {plan.zero})"
        )


def _check_recompute(plan: Plan) -> None:
    if plan.recompute and plan.splits_backward:
        whole = [n for n, s in schedule.SCHEDULES.items() if not s.splits_backward]
        raise PlanError(
            f"schedule {plan.schedule!r} splits backward into halves, which torch cannot do through a recomputed "
            f"layer: use {_either(whole)}, or recompute=False"
        )


def check(plan: Plan) -> None:
    """Raise PlanError for the first rule that the plan breaks."""
    for rule in _RULES:
        rule(plan)


_RULES = (
    _check_choices,
    _check_ranks,
    _check_schedule,
    _check_layers,
    _check_batch,
    _check_emulation,
    _check_slow,
    _check_sizes,
    _check_tensor_parallel,
    _check_zero,
    _check_grad_sync,
    _check_recompute,
)


def suggest(name: Any, known: Iterable[str]) -> str:
    """ " (did you mean ...?)" for a name close to a known one, else nothing."""
    close = difflib.get_close_matches(str(name), list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _either(options: list[Any]) -> str:
    shown = [str(option) for option in options]
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
