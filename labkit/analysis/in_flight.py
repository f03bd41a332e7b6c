"""How many microbatches a pipeline rank holds at once.

In: a Trace with stage events. Out: counts. What is held is counted from the work itself, so it needs no memory columns.
"""

from __future__ import annotations

import polars as pl

from labkit.event import STAGE_KINDS, Kind
from labkit.trace import Trace


def microbatches_held(trace: Trace) -> dict[int, int]:
    """For each rank the most microbatches at once whose forward had begun and whose backward had not ended.

    A rank with several stages counts each stage's share: two stages that hold one microbatch each make 2. Where a
    schedule splits backward, its last half ends it.

    Forwards of microbatches 0 and 1 begin at 0 and 2, their backwards end at 6 and 9: 2.
    """
    work = trace.of(*STAGE_KINDS).with_columns((pl.col("kind").cast(pl.String) == str(Kind.STAGE_FORWARD)).alias("in"))
    held = work.group_by("rank", "step", "stage", "microbatch").agg(
        pl.col("start_ns").filter("in").min().alias("from_ns"), pl.col("end_ns").filter(~pl.col("in")).max()
    )  # fmt: skip
    begun = held.select("rank", pl.col("from_ns").alias("t_ns"), pl.lit(1).alias("change"))
    ended = held.select("rank", pl.col("end_ns").alias("t_ns"), pl.lit(-1).alias("change"))
    changes = pl.concat([begun, ended]).drop_nulls().sort("rank", "t_ns", "change")  # ends before what begins then
    most = changes.with_columns(pl.col("change").cum_sum().over("rank")).group_by("rank").agg(pl.col("change").max())
    return dict(most.sort("rank").iter_rows())
