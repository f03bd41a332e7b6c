"""Gradient noise: how far a small batch's gradient lies from that of all images, at the same weights.

In: a `Trace` of one rank that accumulated gradients over microbatches, with values. Out: a table, a row per batch size.

Every microbatch of a step computes its gradient at the same weights. The gradient of 2, 4, 8 ... microbatches together
is the mean of theirs, so one captured step tells the noise of many batch sizes. Batches are drawn from the step's N
images without putting any back, so by sampling theory the mean squared distance goes with 1/b x (N - b)/(N - 1).
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from labkit.event import Kind
from labkit.trace import Trace

_SCHEMA = {"batch": pl.Int64, "num_batches": pl.Int64, "noise": pl.Float64, "expected": pl.Float64}


def gradient_noise(trace: Trace, *, step: int = 0) -> pl.DataFrame:
    """Columns batch, num_batches, noise, expected, smallest batch first; empty without at least two microbatches.

    noise: root mean square of |gradient of the batch - gradient of all| / |gradient of all|. expected: what theory
    makes of the noise of the smallest batch. 4 microbatches of 1 image with gradients 1, 3, 1, 3: the mean is 2, noise
    0.5; pairs have 2, 2, noise 0.
    """
    gradients = microbatch_gradients(trace, step)
    plan = trace.meta.plan or {}
    num, size = len(gradients), int(plan.get("global_batch", 0)) // int(plan.get("dp", 1))
    if num < 2:
        return pl.DataFrame(schema=_SCHEMA)
    whole = gradients.mean(axis=0)
    length = max(float(np.linalg.norm(whole)), 1e-300)
    rows: list[tuple[int, int, float, float]] = []
    for together in (2**k for k in range(num.bit_length()) if num % 2**k == 0 and num // 2**k > 1):
        means = gradients.reshape(num // together, together, -1).mean(axis=1)
        noise = math.sqrt(float(((means - whole) ** 2).sum(axis=1).mean())) / length
        batch = size * together // num
        first = rows[0] if rows else (batch, num, noise, noise)
        expected = first[2] * math.sqrt(first[0] / batch * (size - batch) / (size - first[0]))
        rows.append((batch, num // together, noise, expected))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def microbatch_gradients(trace: Trace, step: int = 0) -> np.ndarray:
    """What each of m microbatches adds to rank 0's gradient in a step: 1/m of its own. (m, num_parameters)"""
    kept = trace.of(Kind.VALUE).filter(
        (pl.col("op") == "grad_local") & (pl.col("rank") == 0) & (pl.col("step") == step)
    )
    rows = kept.sort("microbatch", "layer").partition_by("microbatch", maintain_order=True)
    found = [np.concatenate([np.frombuffer(d, t) for d, t in zip(one["data"], one["dtype"])]) for one in rows]
    return np.stack(found).astype(np.float64) if found else np.zeros((0, 0))
