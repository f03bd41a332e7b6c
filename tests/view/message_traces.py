"""Traces of all-reduces by messages, made by running the algorithms on numbers: rings, trees, gathers of any size."""

import numpy as np

from labkit.trace import Meta, Trace, from_events

MS = 1_000_000


def ring(n: int = 4, *, size: int = 8, tied: bool = False, values: bool = True) -> Trace:
    """Reduce-scatter, then all-gather: 2 (n - 1) rounds of one chunk."""
    held = [np.array_split(_gradient(rank, size), n) for rank in range(n)]
    rows = []
    for k in range(2 * (n - 1)):
        sent = {rank: held[rank][(rank - k) % n].copy() for rank in range(n)}
        for rank in range(n):
            rows += _message(rank, (rank + 1) % n, k, k, sent[rank], n, tied, values)
        for rank in range(n):
            chunk, value = (rank - 1 - k) % n, sent[(rank - 1) % n]
            held[rank][chunk] = held[rank][chunk] + value if k < n - 1 else value
    return _trace(rows, n, "ring")


def tree(n: int = 4, *, size: int = 8, tied: bool = False, values: bool = True) -> Trace:
    """Sums climb to rank 0 and results come down."""
    held = [_gradient(rank, size) for rank in range(n)]
    rows, distance, moment = [], 1, 0
    while distance < n:
        for rank in range(0, n - distance, 2 * distance):
            rows += _message(rank + distance, rank, moment, 0, held[rank + distance], n, tied, values)
            held[rank] = held[rank] + held[rank + distance]
        distance, moment = distance * 2, moment + 1
    while distance > 1:
        distance //= 2
        for rank in range(0, n - distance, 2 * distance):
            rows += _message(rank, rank + distance, moment, 0, held[rank], n, tied, values)
        moment += 1
    return _trace(rows, n, "tree")


def gather(n: int = 4, *, size: int = 8, tied: bool = False) -> Trace:
    """All to rank 0, which adds up, and back."""
    total = sum(_gradient(rank, size) for rank in range(n))
    rows = []
    for k in range(1, n):
        rows += _message(k, 0, k - 1, 0, _gradient(k, size), n, tied, True)
        rows += _message(0, k, n - 2 + k, 0, total, n, tied, True)
    return _trace(rows, n, "gather")


def _gradient(rank: int, size: int) -> np.ndarray:
    return (np.arange(size) + 1.0) * 10.0 ** (rank % 8)


def _message(sender, receiver, moment, seq, value, n, tied, keeps_values) -> list[dict]:
    start, end = (0, 0) if tied else (moment * 10 * MS, moment * 10 * MS + 4 * MS)
    common = dict(step=0, axis="dp", group=list(range(n)), size_bytes=value.nbytes, dtype="float64", seq=seq)
    rows = [
        dict(rank=sender, kind="sync", op="send", peer=receiver, start_ns=start, end_ns=end, **common),
        dict(rank=receiver, kind="sync", op="recv", peer=sender, start_ns=start, end_ns=end, **common),
    ]
    if not keeps_values:
        return rows
    kept = dict(kind="value", step=0, size_bytes=value.nbytes, dtype="float64", shape=[len(value)])
    kept["data"] = value.tobytes()
    return rows + [
        dict(rank=sender, op="sync_in", start_ns=start, end_ns=start, **kept),
        dict(rank=receiver, op="sync_out", start_ns=end, end_ns=end, **kept),
    ]


def _trace(rows: list[dict], n: int, how: str) -> Trace:
    plan = {"task": "digits", "pp": 1, "dp": n, "tp": 1, "grad_sync": how}
    return from_events(rows, Meta("paced", plan=plan, num_ranks=n))
