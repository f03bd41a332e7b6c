"""What each rank held in memory, over time and at most.

In: a Trace whose events carry the four byte columns. Out: bytes.
"""

from __future__ import annotations

import polars as pl

from labkit.trace import Trace

HELD = ("param_bytes", "grad_bytes", "optimizer_bytes", "activation_bytes")
"""The columns that say what a rank held when an event ended."""


def memory_lanes(trace: Trace) -> pl.DataFrame:
    """What each rank held, as steps in time: a row whenever one of the four numbers changed.

    Columns rank, t_ns, param_bytes, grad_bytes, optimizer_bytes, activation_bytes. A number holds until the rank's next
    row; one that an event does not tell keeps its last value, and is 0 before it was ever told.

    Ends of events at 1, 2, 3 with activations 0, 8, 8: rows at 1 (0) and at 2 (8).
    """
    told = trace.events.select("rank", pl.col("end_ns").alias("t_ns"), *HELD)
    told = told.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in HELD))
    lanes = told.sort("rank", "t_ns", maintain_order=True)
    lanes = lanes.with_columns(pl.col(name).forward_fill().over("rank").fill_null(0) for name in HELD)
    lanes = lanes.filter(_differs(["rank", "t_ns"], -1))  # the last word at each time
    return lanes.filter(_differs(["rank", *HELD], 1))


def _differs(names: list[str], away: int) -> pl.Expr:
    """Whether a row differs from the one before (1) or after it (-1) in any of these; where there is none, it does."""
    return pl.any_horizontal(pl.col(name) != pl.col(name).shift(away) for name in names).fill_null(True)


def memory_peaks(trace: Trace) -> dict[int, int]:
    """Most bytes each rank held at once: parameters, gradients, optimizer state and activations."""
    held = trace.events.with_columns(pl.sum_horizontal([pl.col(name).fill_null(0) for name in HELD]).alias("held"))
    table = held.group_by("rank").agg(pl.col("held").max()).sort("rank")
    return dict(zip(table["rank"], table["held"], strict=True))


def most_held(trace: Trace) -> dict[str, int]:
    """Most bytes of each kind that any rank held, by the names in `HELD`. The four maxima need not fall together."""
    most = trace.events.select(pl.col(name).max().fill_null(0) for name in HELD)
    return {name: int(most[name].item()) for name in HELD}
