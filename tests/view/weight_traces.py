"""Traces of a digits network whose weights and gradients were kept: real images, and gradients worked out in numpy."""

from itertools import pairwise

import numpy as np

from labkit.digits import digits
from labkit.trace import Meta, Trace, from_events


def trained(steps: int = 4, *, hidden: int = 0, batch: int = 20, lr: float = 0.5, seed: int = 0) -> Trace:
    """Plain SGD on the first images, one batch after the other; `hidden` units between, or none."""
    rng = np.random.default_rng(seed)
    sizes = [64, hidden, 10] if hidden else [64, 10]
    weights = [rng.uniform(-0.1, 0.1, (m, n)) for n, m in pairwise(sizes)]
    biases, rows, losses = [np.zeros(m) for m in sizes[1:]], [], []
    for step in range(steps):
        samples = np.arange(step * batch, (step + 1) * batch) % 1797
        kept = {f"fc{i}.linear.weight": weight for i, weight in enumerate(weights)}
        kept |= {f"fc{i}.linear.bias": bias for i, bias in enumerate(biases)}
        grads, loss = _gradients(weights, biases, samples)
        rows += [dict(_event("load", step), samples=samples.tolist()), _event("step", step)]
        rows += [_value("weight", step, name, value) for name, value in kept.items()]
        rows += [_value("grad", step, name, grad) for name, grad in grads.items()]
        weights = [w - lr * grads[f"fc{i}.linear.weight"] for i, w in enumerate(weights)]
        biases = [b - lr * grads[f"fc{i}.linear.bias"] for i, b in enumerate(biases)]
        losses.append(loss)
    plan = {"task": "digits", "global_batch": batch, "lr": lr, "optimizer": "sgd", "pp": 1, "dp": 1, "tp": 1}
    layers = tuple(f"fc{i}" for i in range(len(weights)))
    return from_events(rows, Meta("measured", plan=plan, layers=layers, losses=tuple(losses)))


def _gradients(weights: list, biases: list, samples: np.ndarray) -> tuple[dict[str, np.ndarray], float]:
    """By the chain rule, for one or two layers, by the parameters' names. And the loss."""
    images, labels = digits()
    x, n, last = images[samples].astype(float), len(samples), len(weights) - 1
    hidden = np.maximum(x @ weights[0].T + biases[0], 0) if last else x
    scores = hidden @ weights[-1].T + biases[-1]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    loss = float(-np.log(shares[np.arange(n), labels[samples]]).mean())
    back = (shares - np.eye(10)[labels[samples]]) / n
    found = {f"fc{last}.linear.weight": back.T @ hidden, f"fc{last}.linear.bias": back.sum(axis=0)}
    if last:
        back = (back @ weights[1]) * (hidden > 0)
        found |= {"fc0.linear.weight": back.T @ x, "fc0.linear.bias": back.sum(axis=0)}
    return found, loss


def _event(kind: str, step: int) -> dict:
    return dict(rank=0, kind=kind, step=step, microbatch=0, stage=0, start_ns=1000 * step, end_ns=1000 * step + 900)


def _value(op: str, step: int, name: str, value: np.ndarray) -> dict:
    kept = dict(op=op, layer=name, shape=list(value.shape), dtype="float64", size_bytes=value.nbytes)
    return _event("value", step) | kept | dict(data=np.ascontiguousarray(value).tobytes())
