"""What a form asks for: fields in groups, which of them apply, and the plan they stand for.

In: what task, schedule and so on may be. Out: `Group`s of `Field`s; form values become the fields of a Plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Field:
    """One input of the form. `kind`: number, choice, slider (over `choices`) or switch.

    One with `needs` applies while that field is on, above 1, or chosen.
    """

    name: str
    label: str
    kind: str
    value: Any
    help: str = ""
    choices: tuple[tuple[Any, str], ...] = ()
    low: float | None = None
    high: float | None = None
    needs: str = ""


@dataclass(frozen=True)
class Group:
    """Fields that belong together, under one heading. A folded group opens on demand."""

    title: str
    fields: tuple[Field, ...] = field(default=())
    is_folded: bool = False


DEGREES = tuple((n, str(n)) for n in (1, 2, 3, 4, 6, 8))
CHOICES = {
    "task": ("digits",),
    "schedule": ("1f1b", "gpipe"),
    "optimizer": ("sgd", "adam", "adamw"),
    "link": (),
    "grad_sync": ("engine",),
    "tensor": ("dtensor",),
    "dtype": ("float32",),
}
"""What the choices offer unless `form_groups` is told more."""

_ZERO = ((0, "0: nothing (DDP)"), (1, "1: optimizer state"), (2, "2: and gradients"), (3, "3: and parameters"))
_VALUES = ((0, "none"), (65536, "tensors up to 64 KiB"), (1048576, "tensors up to 1 MiB"))
_BY_HAND = {"engine": "torch's engine", "off": "not at all"}


def form_groups(choices: Mapping[str, Sequence[str]] | None = None) -> tuple[Group, ...]:
    """The form: what is trained, how it is spread, how fast it goes, and the rest. Names are those of a Plan."""
    offered = CHOICES | dict(choices or {})
    known = {name: tuple((value, value) for value in values) for name, values in offered.items()}

    def pick(name: str, label: str, help: str = "", needs: str = "") -> Field:
        """A choice that starts at our own first one if it is offered, else at theirs."""
        first = CHOICES[name][0] if CHOICES[name][0] in offered[name] else offered[name][0]
        return Field(name, label, "choice", first, help, known[name], needs=needs)

    links = (("", "this machine"), *known["link"])
    trained = (
        pick("task", "Task"),
        Field("layers", "Layers", "number", 8, low=1, high=64),
        Field("global_batch", "Global batch", "number", 64, "samples of one step, over all replicas", low=1, high=4096),
        Field("steps", "Steps", "number", 3, low=1, high=1000),
        pick("optimizer", "Optimizer"),
        Field("lr", "Learning rate", "number", None, "empty: the optimizer's own", low=0),
    )
    spread = (
        Field("dp", "Data parallel", "choice", 1, "replicas, each with a share of the batch", DEGREES),
        Field("tp", "Tensor parallel", "choice", 1, "ranks that share each weight matrix", DEGREES),
        Field("pp", "Pipeline", "choice", 4, "stages, each with a run of layers", DEGREES),
        Field("zero", "ZeRO", "choice", 0, "what replicas share out", _ZERO, needs="dp"),
        pick("schedule", "Schedule", needs="pp"),
        Field("microbatches", "Microbatches", "number", 8, "pieces of a replica's batch", low=1, high=256),
    )
    speed = (
        Field("paced", "Set durations", "switch", True, "every operation takes a set time; else this machine's own"),
        Field("forward_ms", "Forward, ms", "number", 20, "of one rank and microbatch", low=0, high=5000, needs="paced"),
        Field("backward_ms", "Backward, ms", "number", 40, low=0, high=5000, needs="paced"),
        Field("link", "Link", "choice", "", "emulated between all ranks", links),
        Field("time_scale", "Time scale", "number", 1, "all set speeds are so many times slower", low=1, high=1e6),
    )
    by_hand = tuple((value, _BY_HAND.get(value, f"by hand: {value}")) for value in offered["grad_sync"])
    more = (
        Field("width", "Width", "number", 64, "features between layers", low=1, high=4096),
        Field("heads", "Heads", "number", 4, "attention heads (chars)", low=1, high=64),
        Field("virtual", "Stages per rank", "number", None, "empty: the schedule's own", low=1, high=8, needs="pp"),
        Field(
            "grad_sync", "Averaging gradients", "choice", "engine", "by hand: message by message", by_hand, needs="dp"
        ),
        pick("tensor", "Tensor engine", needs="tp"),
        Field("value_limit_bytes", "Keep values of", "choice", 0, "cut matrices show their numbers", _VALUES),
        Field("bucket_mb", "Gradient bucket, MiB", "number", 25, "DDP", low=0.001, high=1000, needs="dp"),
        pick("dtype", "Numbers"),
        Field("seed", "Seed", "number", 0, "of weights and order of samples", low=0, high=1e6),
        Field("sequence_parallel", "Sequence parallel", "switch", False, "split activations too (chars)", needs="tp"),
        Field("recompute", "Recompute", "switch", False, "keep only each layer's input until backward"),
        Field("offload", "CPU offload", "switch", False, "ZeRO 2 and 3", needs="zero"),
    )
    return (
        Group("What is trained", trained),
        Group("How it is spread", spread),
        Group("How fast it goes", speed),
        Group("More of the plan", more, is_folded=True),
    )


def start_values(groups: Sequence[Group]) -> dict[str, Any]:
    """What the form holds when it opens."""
    return {one.name: one.value for group in groups for one in group.fields}


_FIELDS = {one.name: one for group in form_groups() for one in group.fields}
_SET_DURATIONS = ("paced", "forward_ms", "backward_ms")


def plan_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """A form's values as the fields of a Plan: pace as text, what does not apply or may be left empty not at all.

    Raises ValueError for a number that is missing.
    """
    for name, one in _FIELDS.items():
        if values.get(name, one.value) is None and one.value is not None and _applies(name, values):
            raise ValueError(f"{one.label} is empty: give a number from {one.low:g} to {one.high:g}")
    plan = {
        name: value
        for name, value in values.items()
        if name not in _SET_DURATIONS and value not in (None, "") and _applies(name, values)
    }
    if values["paced"]:
        plan["pace"] = f"forward={values['forward_ms']:g}ms,backward={values['backward_ms']:g}ms"
    return plan


def _applies(name: str, values: Mapping[str, Any]) -> bool:
    """As in `static/controls.js`."""
    needs = _FIELDS[name].needs if name in _FIELDS else ""
    needed = values.get(needs, True)
    return bool(needed) if isinstance(needed, bool | str) else needed > 1
