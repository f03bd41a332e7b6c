"""How long an operation of a paced run takes: set durations instead of what this machine's cores give.

In: "forward=20ms,backward=40ms". Out: a frozen `Pace`. The engine holds every operation to it by sleeping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from labkit import quantity

CARRIED_OPERATIONS, CARRIED_NS = 4, 100_000_000
"""A paced operation whose real work is late still ends on time if the lag is at most so many of its durations, or so
many ns (a busy machine stops a process for that long now and then): the next ones sleep less. More lag shows in the
trace: then this machine is too slow for the pace."""


def carried_ns(duration_ns: int) -> int:
    """How much lag an operation of this duration may leave to the next ones."""
    return max(CARRIED_OPERATIONS * duration_ns, CARRIED_NS)


@dataclass(frozen=True)
class Pace:
    """Seconds one rank needs for one microbatch; a whole backward takes both halves. 0 leaves the real duration.

    A rank's stages share them, so that schedules which cut the same model finer can be compared.
    """

    forward_s: float = 0.0
    backward_input_s: float = 0.0
    backward_weight_s: float = 0.0
    optimizer_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (isinstance(value, int | float) and 0 <= value < float("inf")):
                raise ValueError(f"pace {name}={value!r}: give a time of 0 or more, e.g. forward=20ms")

    @property
    def backward_s(self) -> float:
        return self.backward_input_s + self.backward_weight_s

    def of_stage(self, stages_per_rank: int) -> Pace:
        """What one of so many equal stages of a rank takes."""
        work = {name: value / stages_per_rank for name, value in vars(self).items() if name != "optimizer_s"}
        return replace(self, **work)

    def scaled(self, factor: float) -> Pace:
        """All durations this many times as long."""
        return replace(self, **{name: value * factor for name, value in vars(self).items()})

    def __str__(self) -> str:
        names = ("forward", "backward_input", "backward_weight", "optimizer")
        return ",".join(f"{name}={getattr(self, name + '_s') * 1e3:g}ms" for name in names)


def _read(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    names = [name.strip() for name, _, _ in pairs]
    if any(not equals for _, equals, _ in pairs) or len(set(names)) < len(names):
        raise ValueError(f"pace {text!r}: give each duration once, e.g. forward=20ms,backward=40ms")
    return {name: value for name, (_, _, value) in zip(names, pairs)}


def as_pace(spec: Pace | str | Mapping[str, object]) -> Pace:
    """A pace from text or a mapping: forward, backward (split evenly) or backward_input/backward_weight, optimizer."""
    if isinstance(spec, Pace):
        return spec
    if isinstance(spec, str):
        spec = _read(spec)
    if not isinstance(spec, Mapping) or not spec:
        raise ValueError(f"pace {spec!r}: give at least one duration, e.g. forward=20ms,backward=40ms")
    durations = {key.strip().removesuffix("_s"): quantity.seconds(value) for key, value in spec.items()}
    if "backward" in durations:
        if {"backward_input", "backward_weight"} & set(durations):
            raise ValueError("pace: give either backward, or backward_input and backward_weight, not both")
        durations["backward_input"] = durations["backward_weight"] = durations.pop("backward") / 2
    known = ("forward", "backward_input", "backward_weight", "optimizer")
    unknown = sorted(set(durations) - set(known))
    if unknown:
        raise ValueError(f"pace {', '.join(unknown)}: known are backward, {', '.join(known)}; e.g. forward=20ms")
    return Pace(**{f"{name}_s": value for name, value in durations.items()})
