"""Traces of copies of one weight: some ranks that average their gradients, or do not."""

import numpy as np

from labkit.trace import Meta, Trace, from_events

LR = 0.5


def copies(n: int = 3, num_steps: int = 3, *, averaged: bool = True, microbatches: int = 1) -> Trace:
    """fc0.linear.weight (2, 4): gradient descent with made-up gradients, in double precision."""
    rng, rows = np.random.default_rng(3), []
    held = [np.arange(8.0).reshape(2, 4)] * n
    for step in range(num_steps):
        own = rng.normal(size=(n, microbatches, 2, 4))
        total = own.sum(axis=1)
        for rank in range(n):
            used = total.mean(axis=0) if averaged else total[rank]
            rows += [_value(rank, step, "weight", held[rank])]
            rows += [_value(rank, step, "grad_local", own[rank, m], m) for m in range(microbatches)]
            rows += [_value(rank, step, "grad", used)]
            held[rank] = held[rank] - LR * used
    plan = {"task": "digits", "pp": 1, "dp": n, "tp": 1}
    return from_events(rows, Meta("measured", plan=plan, num_ranks=n, layers=("fc0",)))


def _value(rank: int, step: int, op: str, value: np.ndarray, microbatch: int = 0) -> dict:
    common = dict(kind="value", layer="fc0.linear.weight", dtype="float64", size_bytes=value.nbytes)
    where = dict(rank=rank, step=step, microbatch=microbatch, start_ns=step, end_ns=step)
    return dict(op=op, shape=list(value.shape), data=value.tobytes(), **common, **where)
