"""What the digits network of a run said about an image, step by step: its captured weights, worked out again.

In: a `Trace` of task digits whose weights were captured (`value_limit_bytes`). Out: a `Perceptron` for every step, in
plain numpy and double precision. tests/engine/test_in_numpy.py holds its losses against torch's.

The network (`labkit.engine.tasks`): every layer is y = x Wᵀ + b, with a ReLU behind all but the last; the loss is the
mean over images of -log softmax(y)[digit].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit.event import Kind
from labkit.trace import Trace


@dataclass(frozen=True)
class Perceptron:
    """Weights of every layer, first layer first. weights[i]: (out, in), biases[i]: (out,)."""

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]

    @property
    def num_parameters(self) -> int:
        return sum(one.size for one in (*self.weights, *self.biases))

    @property
    def flat(self) -> np.ndarray:
        """All parameters in a row, as a point in the space of all networks of this shape. (num_parameters,)"""
        layers = zip(self.weights, self.biases, strict=True)
        return np.concatenate([part.ravel() for layer in layers for part in layer])

    def at(self, flat: np.ndarray) -> Perceptron:
        """The network of this shape at another point. flat: (num_parameters,)"""
        weights, biases, used = [], [], 0
        for weight, bias in zip(self.weights, self.biases, strict=True):
            weights.append(flat[used : used + weight.size].reshape(weight.shape))
            biases.append(flat[used + weight.size : used + weight.size + bias.size])
            used += weight.size + bias.size
        return Perceptron(tuple(weights), tuple(biases))


def perceptrons(trace: Trace) -> list[Perceptron]:
    """The network as each step's forward found it: the first one is untrained. Raises ValueError without weights.

    What the last update made is not among them: no forward after it saw those weights.
    """
    by_step = captured(trace, "weight")
    names = [f"{layer}.linear" for layer in trace.meta.layers]
    wanted = [f"{name}.{part}" for name in names for part in ("weight", "bias")]
    if not by_step or _is_cut(trace) or any(name not in kept for kept in by_step for name in wanted):
        raise ValueError(
            "this trace does not hold all weights of a digits network: run a Plan with task='digits', no tp, pp or "
            "zero, and value_limit_bytes at least the bytes of its largest weight"
        )
    return [
        Perceptron(tuple(kept[f"{name}.weight"] for name in names), tuple(kept[f"{name}.bias"] for name in names))
        for kept in by_step
    ]


def _is_cut(trace: Trace) -> bool:
    """Whether rank 0 held only its part of the weights."""
    plan = trace.meta.plan or {}
    return plan.get("tp", 1) * plan.get("pp", 1) > 1 or plan.get("zero", 0) >= 2


def captured(trace: Trace, op: str) -> list[dict[str, np.ndarray]]:
    """Values of a kind ("weight", "grad" ...) by name, for every step: those of rank 0 and the step's first forward."""
    kept = trace.of(Kind.VALUE).filter((pl.col("op") == op) & (pl.col("rank") == 0)).sort("start_ns")
    steps: dict[int, dict[str, np.ndarray]] = {}
    for one in kept.iter_rows(named=True):
        value = np.frombuffer(one["data"], one["dtype"]).reshape(one["shape"]).astype(np.float64)
        steps.setdefault(one["step"], {}).setdefault(one["layer"], value)
    return [steps[step] for step in sorted(steps)]


def activations(network: Perceptron, images: np.ndarray) -> list[np.ndarray]:
    """What every layer gives for these images. images: (n, 64); returns (n, out) for each layer."""
    found, x = [], images
    for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        x = x @ weight.T + bias
        x = np.maximum(x, 0) if number < len(network.weights) - 1 else x
        found.append(x)
    return found


def probabilities(network: Perceptron, images: np.ndarray) -> np.ndarray:
    """How likely the network takes each image to be each digit. (n, 64) -> (n, 10), rows sum to 1"""
    return np.exp(_log_probabilities(network, images))


def mean_loss(network: Perceptron, images: np.ndarray, labels: np.ndarray) -> float:
    """Cross-entropy, the mean over the images. images: (n, 64), labels: (n,)"""
    return float(-_log_probabilities(network, images)[np.arange(len(labels)), labels].mean())


def accuracy(network: Perceptron, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of the images whose likeliest digit is the right one."""
    return float((activations(network, images)[-1].argmax(axis=1) == labels).mean())


def _log_probabilities(network: Perceptron, images: np.ndarray) -> np.ndarray:
    scores = activations(network, images)[-1]
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
