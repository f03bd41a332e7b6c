"""Is a parallel run the same training as the serial one? The largest differences, in numbers.

In: the outcomes of both runs. Out: an `Equality`. Pure numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from labkit.job import Outcome


@dataclass(frozen=True)
class Equality:
    """Largest absolute differences from the serial run; weights after the last step, gradients of the last step."""

    loss_max_abs_diff: float
    grad_max_abs_diff: float
    weight_max_abs_diff: float
    replicas_identical: bool  # ranks that hold the same layers hold the same bits

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def global_losses(outcomes: Sequence[Outcome]) -> list[float]:
    """The loss of every step over the whole batch: the mean over all microbatches of all replicas (equal sizes)."""
    per_step = zip(*(outcome.losses for outcome in outcomes), strict=True)
    return [float(np.mean([loss for losses in step for loss in losses])) for step in per_step]


def compare(parallel: Sequence[Outcome], serial: Sequence[Outcome]) -> Equality:
    """How far the parallel run is from the serial one."""
    here, there = _merged(parallel), _merged(serial)
    losses = zip(global_losses(parallel), global_losses(serial), strict=True)
    return Equality(
        loss_max_abs_diff=float(np.max([abs(a - b) for a, b in losses])),
        grad_max_abs_diff=_largest(here[1], there[1]),
        weight_max_abs_diff=_largest(here[0], there[0]),
        replicas_identical=_replicas_identical(parallel),
    )


Arrays = dict[str, np.ndarray]


def _merged(outcomes: Sequence[Outcome]) -> tuple[Arrays, Arrays]:
    """Weights and gradients of the whole model, from the ranks that sent the stages they hold."""
    weights: Arrays = {}
    grads: Arrays = {}
    for outcome in outcomes:
        if outcome.state is not None:
            weights |= outcome.state.weights
            grads |= outcome.state.grads
    return weights, grads


def _largest(here: Arrays, there: Arrays) -> float:
    if here.keys() != there.keys():
        odd = sorted(here.keys() ^ there.keys())
        raise AssertionError(f"the two runs do not hold the same parameters: {', '.join(odd)}")
    differences = [np.abs(here[name].astype(np.float64) - there[name]).max(initial=0.0) for name in here]
    return float(np.max(differences, initial=0.0))  # unlike max(), says so if any is not a number


def _replicas_identical(outcomes: Sequence[Outcome]) -> bool:
    """Every rank's fingerprint is one that a rank which sent its state also has."""
    sent = {outcome.fingerprint for outcome in outcomes if outcome.state is not None}
    return all(outcome.fingerprint in sent for outcome in outcomes)
