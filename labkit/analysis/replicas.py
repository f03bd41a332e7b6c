"""The copies of one weight that data parallel ranks hold: what each learned alone, what they agreed on, how they drift.

In: a Trace of a run that kept values (`value_limit_bytes`). Out: arrays, or a table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit.trace import Trace


@dataclass(frozen=True)
class Replicas:
    """One weight on every replica, step by step; each array is (steps, ranks, *shape of the weight)."""

    name: str
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    weights: np.ndarray  # when the step began
    own_grads: np.ndarray  # of the rank's own samples
    grads: np.ndarray  # what the optimizer got

    def averaged(self, step: int) -> np.ndarray:
        """Mean of the ranks' own gradients, worked out here in double precision."""
        return self.own_grads[step].mean(axis=0, dtype=np.float64)


def replicas(trace: Trace) -> list[Replicas]:
    """Every weight that the first data parallel group holds whole, where all its values were kept; else it is left out.

    With gradient accumulation a rank's own gradient is the sum over its microbatches.
    """
    mesh = trace.meta.mesh
    ranks = mesh.group("dp", 0)
    kept = trace.of("value").filter(pl.col("rank").is_in(list(ranks)) & pl.col("step").is_not_null())
    names = kept.filter(pl.col("op") == "weight")["layer"].unique(maintain_order=True)
    found = [_replicas(kept.filter(pl.col("layer") == name), name, ranks) for name in names]
    return [one for one in found if one is not None]


def drift(trace: Trace) -> pl.DataFrame:
    """How far the copies of each weight lie apart when a step begins.

    Columns step, weight, difference: the largest of any number on one rank and the same number on another. Three ranks
    that hold 1.0, 1.5 and 0.75: 0.75.
    """
    rows = [(step, one.name, spread(one.weights[k])) for one in replicas(trace) for k, step in enumerate(one.steps)]
    return pl.DataFrame(rows, schema={"step": pl.Int64, "weight": pl.String, "difference": pl.Float64}, orient="row")


def spread(copies: np.ndarray) -> float:
    """The largest difference of copies (ranks, ...); 0 only if they are equal to the last bit."""
    return float(np.ptp(copies.astype(np.float64), axis=0).max(initial=0.0))


def _replicas(kept: pl.DataFrame, name: str, ranks: tuple[int, ...]) -> Replicas | None:
    steps = tuple(kept["step"].unique().sort())
    ops = ("weight", "grad_local", "grad")
    values = [[[_value(kept, op, step, rank) for rank in ranks] for step in steps] for op in ops]
    shapes = {one.shape if one is not None else None for of_op in values for of_step in of_op for one in of_step}
    if len(shapes) != 1 or None in shapes:
        return None
    return Replicas(name, steps, tuple(ranks), *(np.array(of_op) for of_op in values))


def _value(kept: pl.DataFrame, op: str, step: int, rank: int) -> np.ndarray | None:
    """The value of one step and rank; own gradients of microbatches are added up."""
    found = kept.filter((pl.col("op") == op) & (pl.col("step") == step) & (pl.col("rank") == rank))
    if found.is_empty():
        return None
    rows = found.to_dicts() if op == "grad_local" else found.head(1).to_dicts()
    arrays = [np.frombuffer(row["data"], row["dtype"]).reshape(row["shape"]) for row in rows]
    return arrays[0] if len(arrays) == 1 else np.sum(arrays, axis=0)
