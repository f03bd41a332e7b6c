"""Every gap of every rank, cut so that each piece has one cause.

In: a Trace. Out: a table of pieces that adds up to all the time in which ranks computed nothing.

A gap is time within a rank's window without work: idle and exposed sync together. Claims (what the rank waited for)
are laid over it; where two overlap, the wait that ends first is the one the rank was in, and a step that has not ended
on all ranks of the pipeline comes before both. What no claim covers was waiting for nobody: host overhead, or, where
more ranks than cores ran and the rank used little CPU then, the cores.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from labkit.analysis.activity import Activity, activities
from labkit.analysis.cause import Cause
from labkit.analysis.claims import CLAIMS, ending_claims, stage_claims, sync_claims
from labkit.analysis.paint import paint
from labkit.event import STAGE_KINDS, Kind
from labkit.trace import Trace

GAPS = {
    "rank": pl.Int32,
    "step": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "duration_ns": pl.Int64,
    **{name: CLAIMS[name] for name in CLAIMS if name not in ("rank", "start_ns", "end_ns", "until_ns", "of_step")},
}

_NO_CLAIM = -1


def gaps(trace: Trace) -> pl.DataFrame:
    """All pieces of all gaps, by rank and time.

    Columns rank, step, start_ns, end_ns, duration_ns, cause (a `Cause`), by_rank (who was waited for), and of the sync
    that was waited for: op, axis, size_bytes, microbatch, num_ranks, is_sent (only the link was missing), event (its
    row in the trace); null where there is none. A rank that begins its next step early and stands still there waits
    for the step before to drain: that piece counts with the step before.

    Rank 0 works from 0 to 2 and 9 to 10, its all_reduce issued at 2 is complete at 8, rank 1 came at 5: 2 to 5
    straggler by rank 1, 5 to 8 bandwidth-bound sync, 8 to 9 host overhead; 7 in all.
    """
    claims = _claims(trace)
    ranks = {key[0]: rows for key, rows in claims.partition_by("rank", as_dict=True, maintain_order=True).items()}
    nothing = claims.clear()
    pieces = [_pieces(activity, ranks.get(activity.rank, nothing)) for activity in activities(trace)]
    table = pl.concat(pieces) if pieces else pl.DataFrame(schema=_PIECES)
    table = table.join(
        claims.drop("rank", "start_ns", "end_ns", "until_ns"), on="claim", how="left", maintain_order="left"
    )
    duration = (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
    table = table.with_columns(duration, pl.coalesce("of_step", "step").alias("step"))
    return _with_host(trace, table).select(list(GAPS)).cast(GAPS)


def _claims(trace: Trace) -> pl.DataFrame:
    """All claims, those that win last: later ones are painted over earlier ones."""
    waits = pl.concat([sync_claims(trace), stage_claims(trace)])
    waits = waits.sort(["until_ns", "start_ns"], descending=True, maintain_order=True)
    return pl.concat([waits, ending_claims(trace)]).with_row_index("claim").with_columns(pl.col("claim").cast(pl.Int64))


_PIECES = {"rank": pl.Int32, "step": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "claim": pl.Int64}


def _pieces(activity: Activity, claims: pl.DataFrame) -> pl.DataFrame:
    """The rank's gaps cut at every border of a claim or a step, each piece with the claim that covers it."""
    windows = activity.windows
    cuts = windows["start_ns"].to_numpy()
    begins, ends = claims["start_ns"].to_numpy(), claims["end_ns"].to_numpy()
    pieces = paint(activity.gap, begins, ends, cuts=cuts)
    step = np.searchsorted(cuts, pieces.starts, side="right") - 1
    shown = pieces.owner >= 0
    columns = {
        "rank": np.full(len(pieces.starts), activity.rank, np.int32),
        "step": windows["step"].gather(step),
        "start_ns": pieces.starts,
        "end_ns": pieces.ends,
        "claim": np.full(len(pieces.starts), _NO_CLAIM, np.int64),
    }
    columns["claim"][shown] = claims["claim"].to_numpy()[pieces.owner[shown]]
    return pl.DataFrame(columns, schema=_PIECES)


# ---- what waits for nobody


def _with_host(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """Give unclaimed pieces their cause: the host, or the cores where those were short."""
    unclaimed = pl.col("cause").is_null()
    host, cores = pl.lit(str(Cause.HOST)), pl.lit(str(Cause.CORES))
    if not _shares_cores(trace):
        return table.with_columns(pl.col("cause").fill_null(host))
    gap_ns = pl.col("duration_ns").filter(unclaimed).sum().over("rank", "step")
    table = table.join(_cpu_between(trace), on=["rank", "step"], how="left", maintain_order="left", nulls_equal=True)
    without_core = (pl.col("between_cpu_ns") < gap_ns / 2).fill_null(False)
    own = pl.when(without_core).then(cores).otherwise(host)
    return table.with_columns(pl.col("cause").fill_null(own))


def _shares_cores(trace: Trace) -> bool:
    meta = trace.meta
    return meta.source == "measured" and 0 < meta.num_cores < meta.num_ranks


def _cpu_between(trace: Trace) -> pl.DataFrame:
    """CPU time of each rank and step that was spent outside its stages, loss, zeroing and optimizer."""
    inside = trace.of(*STAGE_KINDS, Kind.ZERO_GRAD, Kind.OPTIMIZER).group_by("rank", "step").agg(
        pl.col("cpu_ns").sum().alias("inside_cpu_ns")
    )  # fmt: skip
    steps = trace.of("step").drop_nulls("cpu_ns").group_by("rank", "step").agg(pl.col("cpu_ns").sum())
    both = steps.join(inside, on=["rank", "step"], how="left", nulls_equal=True)
    between = (pl.col("cpu_ns") - pl.col("inside_cpu_ns").fill_null(0)).clip(0).alias("between_cpu_ns")
    return both.select("rank", "step", between)
