"""What to run: a frozen, checked Plan. Start of the flow.

In: degrees, sizes, speeds. Out: a Plan that can run as it stands; anything that cannot is refused here, before a
process starts, by the rules in `rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from labkit import schedule
from labkit.link import Link
from labkit.mesh import Mesh
from labkit.pace import Pace
from labkit.rules import RECORD, PlanError, check, normalise, suggest


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training run: `Plan(dp=2, pp=2, layers=4, steps=5)`. Fields left out take the defaults shown."""

    task: str = "digits"
    layers: int = 4
    """Equal layers of the model (chars: blocks; its embedding and head come on top)."""
    width: int = 64
    """Features between layers (digits_cnn: channels)."""
    heads: int = 4
    """Attention heads (chars)."""
    context: int = 32
    """Characters per sample (chars)."""
    dp: int = 1
    """Data parallel replicas."""
    tp: int = 1
    """Ranks that share every cut weight matrix."""
    pp: int = 1
    """Pipeline ranks, each holding a run of layers."""
    zero: int = 0
    """What data parallel ranks share out: 0 nothing (DDP), 1 optimizer state, 2 also gradients, 3 also parameters."""
    sequence_parallel: bool = False
    """With tp: activations between the cut layers are split along the sequence."""
    recompute: bool = False
    """Keep only each layer's input and compute the rest again in backward (activation checkpointing)."""
    offload: bool = False
    """With zero 2 or 3: parameters, gradients and optimizer state live in CPU memory (FSDP2's CPU offload)."""
    schedule: str | None = None
    """Order of pipeline work; with pp > 1 the default is 1f1b. "own": as `order` says."""
    order: str | None = None
    """Your own schedule: a line of actions for each pipeline rank, such as "0F0,0F1,0B0,0B1"."""
    microbatches: int | None = None
    """Pieces of a replica's batch. Default 1, or enough to fill the pipeline. Without pp: gradient accumulation."""
    virtual: int | None = None
    """Stages per pipeline rank."""
    global_batch: int = 32
    """Samples of one step, over all replicas."""
    steps: int = 3
    optimizer: str = "sgd"
    lr: float | None = None
    """Learning rate; each optimizer has its default."""
    seed: int = 0
    dtype: str = "float32"
    backend: str = "gloo"
    """gloo runs on CPU, nccl on one GPU per rank."""
    bucket_mb: float = 25.0
    """DDP's gradient bucket, in MiB."""
    grad_sync: str = "engine"
    """How replicas average gradients: torch's engine, or by hand: naive, ring, tree, gather; off: not at all."""
    tensor: str = "dtensor"
    """Tensor parallel layers: torch's DTensor, or the hand-written column and row pair."""
    pace: Pace | None = None
    """Set durations instead of this machine's; e.g. "forward=20ms,backward=40ms"."""
    slow: Mapping[int, float] | None = None
    """With pace: ranks whose work takes longer, {2: 1.5}: a straggler to look for. As text: "2=1.5"."""
    link: Mapping[str, Link] | None = None
    """Emulated link per axis; a preset's name or "latency=..,bandwidth=.." stands for all axes."""
    time_scale: float = 1.0
    """Everything set by `pace` and `link` is this many times slower, so that a slow machine can keep up."""
    record: tuple[str, ...] = RECORD
    """What to record, of compute, sync and memory. Nothing: ()."""
    value_limit_bytes: int = 0
    """Record values of tensors up to this size: weights, inputs, outputs, gradients, and what syncs carry."""
    max_events: int = 1_000_000
    """Events kept per rank; later ones are counted as dropped."""
    max_ranks: int = 16
    """Ranks a launch may start on this machine. Predictions may set it as high as they like."""
    split: tuple[int, ...] | None = None
    """Layers of every stage, where not equal."""

    def __post_init__(self) -> None:
        normalise(self)
        check(self)

    @property
    def mesh(self) -> Mesh:
        return Mesh(pp=self.pp, dp=self.dp, tp=self.tp)

    @property
    def num_ranks(self) -> int:
        return self.pp * self.dp * self.tp

    @property
    def num_stages(self) -> int:
        return self.pp * self.virtual

    @property
    def replica_batch(self) -> int:
        """Samples of one step that one data parallel replica gets."""
        return self.global_batch // self.dp

    @property
    def source(self) -> str:
        """Where the times of its trace will come from."""
        return "paced" if self.pace or self.link else "measured"

    @cached_property
    def pipeline(self) -> schedule.Schedule | None:
        """What each pipeline rank computes, in order; None without a pipeline."""
        if self.pp == 1:
            return None
        if self.order is not None:
            return schedule.Schedule.from_text(self.order, name="own")
        return schedule.generate(self.schedule, self.pp, self.microbatches, self.virtual)

    @property
    def stage_pace(self) -> Pace | None:
        """The set durations of one stage."""
        return self.pace.of_stage(self.virtual) if self.pace else None

    def pace_of(self, rank: int) -> Pace | None:
        """The set durations of one stage on a rank, slower where it is one of `slow`."""
        factor = (self.slow or {}).get(rank, 1.0)
        return self.stage_pace.scaled(factor) if self.pace else None

    @property
    def splits_backward(self) -> bool:
        """Whether its schedule computes input and weight gradients apart."""
        halves = {schedule.Kind.BACKWARD_INPUT, schedule.Kind.BACKWARD_WEIGHT}
        return self.pipeline is not None and any(a.kind in halves for order in self.pipeline.orders for a in order)

    @property
    def layers_of_stage(self) -> tuple[int, ...]:
        """How many of the equal layers each stage holds."""
        return self.split or (self.layers // self.num_stages,) * self.num_stages

    def serial(self) -> Plan:
        """The same training on one rank: what every other plan must equal."""
        one_rank = {"dp": 1, "tp": 1, "pp": 1, "zero": 0, "sequence_parallel": False, "offload": False}
        no_pipeline = {"schedule": None, "order": None, "microbatches": 1, "virtual": 1, "split": None}
        torchs_own = {"recompute": False, "grad_sync": "engine", "tensor": "dtensor"}
        unwatched = {"pace": None, "slow": None, "link": None, "time_scale": 1.0, "record": (), "value_limit_bytes": 0}
        return replace(self, **one_rank, **no_pipeline, **torchs_own, **unwatched)

    def vary(self, **changes: Any) -> Plan:
        """This plan with some fields changed, and what followed from their old values chosen anew.

        `plan.vary(schedule="zbv")` takes ZBV's number of stages, where `replace` would keep the old one.
        """
        return Plan.from_dict(self.varied(**changes))

    def varied(self, **changes: Any) -> dict[str, Any]:
        """The fields that `vary` makes a plan of, also where they make none."""
        values = self.to_dict() | changes
        for name in [name for name in _FOLLOWS if name in changes and changes[name] != getattr(self, name)]:
            values[_FOLLOWS[name]] = changes.get(_FOLLOWS[name])
        if values["pp"] == 1:
            values |= {"schedule": None, "virtual": None}
        return values

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `Plan.from_dict` reads back."""
        as_given = {"link": dict(self.link) if self.link else None}
        as_given["slow"] = {str(rank): factor for rank, factor in self.slow.items()} if self.slow else None
        return msgspec.to_builtins(asdict(self) | as_given)

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self.to_dict())).decode()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """A plan from plain data, e.g. a JSON object; unknown fields are refused."""
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise PlanError(f"unknown plan field {name!r}{suggest(name, known)}: known are {', '.join(known)}")
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        try:
            values = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise PlanError(f"the plan is not JSON: {error}; `Plan.to_json` writes the form to follow") from None
        if not isinstance(values, dict):
            raise PlanError(f'the plan is a JSON {type(values).__name__}: give an object such as {{"dp": 2}}')
        return cls.from_dict(values)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """The plan in a JSON file."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"cannot read the plan file {path}: {error}") from None

    def __str__(self) -> str:
        default = {f.name: f.default for f in fields(self)}
        set_here = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != default[f.name]}
        if self.link:
            set_here["link"] = {axis: str(link) for axis, link in self.link.items()}
        if self.pace:
            set_here["pace"] = str(self.pace)
        return f"Plan({', '.join(f'{name}={value!r}' for name, value in set_here.items())})"

    __repr__ = __str__


_FOLLOWS = {"schedule": "virtual", "pp": "virtual", "optimizer": "lr"}
"""Fields whose default hangs on another one."""
