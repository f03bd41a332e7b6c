"""How often a step synchronizes, all ranks together.

In: a Trace. Out: operations per axis. `totals.syncs_per_step` counts what one rank takes part in; here a collective
counts once, however many ranks it joins, and so does a message with its two ends.
"""

from __future__ import annotations

import polars as pl

from labkit.analysis.matching import collectives, messages
from labkit.trace import Trace


def operations_per_step(trace: Trace) -> pl.DataFrame:
    """Columns axis, op, operations (of one step: the median over the steps), size_bytes (of one, on average).

    Set-up is left out. One all_reduce of 8 bytes over 4 ranks in each of 3 steps: 1 operation of 8 bytes.
    """
    columns = ("axis", "op", "step", "size_bytes")
    both = pl.concat([
        collectives(trace).select(columns),
        messages(trace).with_columns(pl.lit("message").alias("op")).select(columns),
    ])  # fmt: skip
    steps = pl.DataFrame({"step": trace.events["step"].drop_nulls().unique().sort()})
    both = both.filter(pl.col("step").is_not_null())
    kinds = both.select("axis", "op").unique()
    counted = both.group_by("axis", "op", "step").agg(pl.len().alias("operations"))
    each = kinds.join(steps, how="cross").join(counted, on=["axis", "op", "step"], how="left")
    usual = each.group_by("axis", "op").agg(pl.col("operations").fill_null(0).quantile(0.5, "lower").cast(pl.Int64))
    sizes = both.group_by("axis", "op").agg(pl.col("size_bytes").mean())
    table = usual.join(sizes, on=["axis", "op"]).filter(pl.col("operations") > 0)
    return table.select("axis", "op", "operations", "size_bytes").sort("axis", "op")


def operation_totals(trace: Trace) -> dict[str, int]:
    """`operations_per_step` summed over ops: {"dp": 1, "tp": 49}."""
    table = operations_per_step(trace).group_by("axis").agg(pl.col("operations").sum()).sort("axis")
    return dict(table.iter_rows())
