"""Does it fit, by how much does it miss, and what would make it fit?

In: a Training and a Cluster. Out: one sentence; empty where the fullest rank fits its device.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from labkit.cluster import Cluster
from labkit.costs import Training, peak_memory

_NUM_WAYS = 3
"""Ways out that a sentence names."""


def memory_advice(training: Training, cluster: Cluster) -> str:
    """Empty if it fits; else by how much the fullest rank misses and the smallest changes that would make it fit."""
    room = cluster.device.memory_bytes
    missing = peak_memory(training).total_bytes - room
    if missing <= 0:
        return ""
    found = (change for change in _changes(training, cluster) if _fits(training, change, cluster))
    ways = [_change_words(change) for change in islice(found, _NUM_WAYS)]
    way = f"it would fit with {', or '.join(ways)}" if ways else "no change tried makes it fit: use more ranks"
    return f"needs {missing / 1e9:.1f} GB more than the {room / 1e9:g} GB of {cluster.device.name}; {way}"


def _changes(training: Training, cluster: Cluster) -> list[dict[str, object]]:
    """What to try, the mildest first: recompute, share out, offload, smaller pieces, more ranks, two at once."""
    again = [{"recompute": kind} for kind in ("selective", "full") if kind != training.recompute]
    shared = [{"zero": stage} for stage in (1, 2, 3) if training.dp > 1 and stage > training.zero]
    moved = [{"offload": True}] if cluster.device.cpu_link and not training.offload else []
    smaller = [{"microbatch": training.microbatch // 2}] if training.microbatch % 2 == 0 else []
    wider = [{axis: getattr(training, axis) * factor} for factor in (2, 4, 8, 16) for axis in ("tp", "pp")]
    both = [first | second for second in (*shared, *wider) for first in again]
    return [*again, *shared, *moved, *smaller, *wider, *both]


def _fits(training: Training, change: dict[str, object], cluster: Cluster) -> bool:
    """Whether it fits, and `predict` takes it: e.g. no link between nodes rules out more ranks than a node has."""
    from labkit.predict.step import predict  # which itself asks for advice

    try:
        changed = replace(training, **change)
        return peak_memory(changed).total_bytes <= cluster.device.memory_bytes and predict(changed, cluster).fits
    except ValueError:
        return False  # not a legal plan, so no way out


def _change_words(change: dict[str, object]) -> str:
    return " and ".join(f"{name} {value}" for name, value in change.items())
