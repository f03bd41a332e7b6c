"""How many events and syncs there are, and how many bytes they carry.

In: a Trace. Out: numbers per kind, axis and op.
"""

from __future__ import annotations

import polars as pl

from labkit.trace import Trace


def counts(trace: Trace) -> dict[str, int]:
    """Number of events of each kind, over all ranks and steps."""
    table = trace.events.group_by("kind").len()
    return dict(sorted(zip(table["kind"].cast(pl.String), table["len"].to_list(), strict=True)))


def syncs_per_step(trace: Trace) -> pl.DataFrame:
    """For each axis and op: operations and bytes of one rank in one step.

    Columns axis, op, count, bytes: the median over steps of each rank, averaged over the ranks in the trace (the ends
    of a pipeline send less than its middle). A message counts on both of its ranks. Set-up is left out.
    """
    syncs = trace.of("sync").filter(pl.col("step").is_not_null())
    num_steps, num_ranks = syncs["step"].n_unique(), trace.events["rank"].n_unique()
    per_step = syncs.group_by("axis", "op", "rank", "step").agg(pl.len().alias("count"), pl.col("size_bytes").sum())
    per_rank = per_step.group_by("axis", "op", "rank").agg(
        _median_with_absent("count", num_steps), _median_with_absent("size_bytes", num_steps)
    )
    return (
        per_rank.group_by("axis", "op")
        .agg(pl.col("count").sum() / num_ranks, (pl.col("size_bytes").sum() / num_ranks).alias("bytes"))
        .sort("axis", "op")
    )


def _median_with_absent(column: str, num_steps: int) -> pl.Expr:
    """Median over all steps, those without a row counting 0."""
    values = pl.col(column)
    return values.sort().reverse().get(num_steps // 2, null_on_oob=True).fill_null(0).cast(pl.Float64).alias(column)


def sync_totals(trace: Trace) -> dict[str, dict[str, float]]:
    """`syncs_per_step` summed over ops: {"dp": {"count": 1.0, "bytes": 51240.0}}."""
    table = syncs_per_step(trace).group_by("axis").agg(pl.col("count").sum(), pl.col("bytes").sum()).sort("axis")
    return {row["axis"]: {"count": row["count"], "bytes": row["bytes"]} for row in table.to_dicts()}
