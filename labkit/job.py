"""What the parent asks of a rank, and what a rank answers. Travels over the rank's pipe, between our own processes.

In: a plan. Out: a `Job` for every rank, an `Outcome` from every rank.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from labkit.faults import Fault
from labkit.plan import Plan


@dataclass(frozen=True)
class Job:
    """One run. `task` is a user's own Task, pickled by value. `with_state`: send whole weights and gradients back.

    `fault`: what one of the ranks does to itself.
    """

    run: int
    plan: Plan
    task: bytes | None = None
    with_state: bool = False
    store_port: int = 0
    fault: Fault | None = None


@dataclass(frozen=True)
class State:
    """Whole weights, and gradients of the last step, of the layers a rank holds; by parameter name."""

    weights: dict[str, np.ndarray]
    grads: dict[str, np.ndarray]

    def fingerprint(self) -> str:
        """Equal for equal bits of all weights."""
        digest = hashlib.sha256()
        for name in sorted(self.weights):
            digest.update(name.encode())
            digest.update(self.weights[name].tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Outcome:
    """What a rank has to say when it is done. Times are seconds since the job arrived."""

    layers: tuple[str, ...]
    losses: list[list[float]]  # per step, of the microbatches whose loss this rank computed
    step_seconds: list[float]
    first_step_seconds: float
    num_buckets: int | None = None  # of DDP
    state: State | None = None  # from one rank of those that hold the same layers
    fingerprint: str | None = None  # from every rank
    versions: dict[str, str] = field(default_factory=dict)
