"""When a step of a rank begins and ends.

In: a Trace. Out: each rank's *windows*, the times that breakdown, gaps and critical path ask about.

A rank's step lasts from its start until the last rank of its pipeline has ended that step, or until the rank begins its
next one, whichever comes first. So the time in which a pipeline drains belongs to the step, on every rank, and no
moment belongs to two. What lies between the steps of a rank otherwise is left out. Without a pipeline a step is what
its `step` event says; where none was recorded it lasts from the first start to the last end over all ranks.

    rank 0   step 0 |0 ----------- 10|  step 1 |10 ------ 15|      windows  0-10, 10-15
    rank 1   step 0 |0 --- 6|   step 1 |8 ------ 13|                        0-8, 8-15
"""

from __future__ import annotations

import polars as pl

from labkit.event import Kind
from labkit.trace import Trace


def pipeline_of(trace: Trace) -> pl.Expr:
    """The number of a row's pipeline (replica and tensor parallel position); of a rank outside the mesh its own."""
    numbers = {rank: i for i, group in enumerate(trace.meta.mesh.groups("pp")) for rank in group}
    alone = -1 - pl.col("rank").cast(pl.Int64)
    return pl.col("rank").replace_strict(numbers, default=alone, return_dtype=pl.Int64).alias("pipeline")


def step_ends(trace: Trace) -> pl.DataFrame:
    """When each rank ended each step, and when the last one did that shares it.

    Columns rank, step, start_ns, end_ns, last_ns, last_rank. Ranks of a pipeline share a step; where no `step` events
    were recorded, all ranks of the trace do.
    """
    steps = trace.of(Kind.STEP)
    shared = [pipeline_of(trace), "step"] if steps.height else ["step"]
    rows = steps if steps.height else trace.events.filter(pl.col("kind") != str(Kind.VALUE))
    ends = rows.filter(pl.col("step").is_not_null()).group_by("rank", "step").agg(
        pl.col("start_ns").min(), pl.col("end_ns").max()
    )  # fmt: skip
    last_rank = pl.col("rank").sort_by("end_ns", "rank").last().over(shared).alias("last_rank")
    return ends.with_columns(pl.col("end_ns").max().over(shared).alias("last_ns"), last_rank).sort("rank", "step")


def windows(trace: Trace) -> dict[int, pl.DataFrame]:
    """For each rank with events: step, start_ns, end_ns of its steps, disjoint and ascending."""
    ends = step_ends(trace)
    ranks = trace.events["rank"].unique().sort().to_list()
    if trace.of(Kind.STEP).is_empty():
        shared = ends.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        return dict.fromkeys(ranks, disjoint(shared) if shared.height else span_of(trace.events))
    by_rank = {key[0]: _own(rows) for key, rows in ends.partition_by("rank", as_dict=True).items()}
    everyone = disjoint(ends.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()))
    return {rank: by_rank.get(rank, everyone) for rank in ranks}


def _own(ends: pl.DataFrame) -> pl.DataFrame:
    """A rank's steps, each until its pipeline has ended it or the next one starts."""
    ends = ends.sort("start_ns", "end_ns")
    until = pl.min_horizontal("last_ns", pl.col("start_ns").shift(-1))  # min_horizontal skips the last one's null
    return disjoint(ends.with_columns(pl.max_horizontal("end_ns", until).alias("end_ns")))


def span_of(rows: pl.DataFrame) -> pl.DataFrame:
    """One window from the first start to the last end."""
    step = pl.lit(None, dtype=pl.Int32).alias("step")
    return rows.select(step, pl.col("start_ns").min(), pl.col("end_ns").max()).drop_nulls("start_ns")


def disjoint(rows: pl.DataFrame) -> pl.DataFrame:
    """Windows in order of time; one that starts inside an earlier one starts at its end."""
    reached = pl.col("end_ns").cum_max().shift(1)
    rows = rows.sort("start_ns", "end_ns").with_columns(pl.max_horizontal("start_ns", reached).alias("start_ns"))
    return rows.filter(pl.col("end_ns") > pl.col("start_ns")).select("step", "start_ns", "end_ns")
