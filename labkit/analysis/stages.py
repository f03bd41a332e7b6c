"""The order of a pipeline's work as the trace shows it: phases of a step, and who needs whose result.

In: a Trace with stage events. Out: causes of waits in a pipeline, and claims for traces without messages.

On every rank a step has a *warm-up* (until the first forward and the first backward of each of its stages), a steady
part, and a *drain* (after its last forward). What is waited for is told by the work that follows the wait.
"""

from __future__ import annotations

import polars as pl

from labkit.analysis.cause import Cause
from labkit.analysis.steps import pipeline_of
from labkit.event import STAGE_KINDS, Kind
from labkit.trace import Trace

_FORWARD = str(Kind.STAGE_FORWARD)
_GRADIENT = (str(Kind.STAGE_BACKWARD), str(Kind.STAGE_BACKWARD_INPUT))
"""Kinds that hand a gradient to the stage before."""


MORE_WORK = 1.02
"""How much more than the waiting rank a rank must work to be called slow."""


def stage_work(trace: Trace) -> pl.DataFrame:
    """Stage events with pipeline and flags.

    `is_first` (of its kind on stage and step), `is_draining` (no forward left), `is_outworked` (in this step some rank
    of the pipeline works longer than this one).
    """
    work = trace.of(*STAGE_KINDS).with_columns(pl.col("kind").cast(pl.String), pipeline_of(trace))
    is_forward = pl.col("kind") == _FORWARD
    begins, last = pl.col("start_ns"), pl.col("start_ns").filter(is_forward).max().over("rank", "step")
    first = begins == begins.min().over("rank", "step", "stage", is_forward)
    work = work.with_columns((pl.col("end_ns") - begins).sum().over("rank", "step").alias("own_ns"))
    outworked = pl.col("own_ns").max().over("pipeline", "step") > MORE_WORK * pl.col("own_ns")
    return work.sort("start_ns", maintain_order=True).with_columns(
        outworked.alias("is_outworked"),
        first.alias("is_first"),
        (begins > last).fill_null(True).alias("is_draining"),
        is_forward.alias("is_forward"),
    )


def waiting_cause(waited_ns: pl.Expr, message_ns: int, num_ranks: int) -> pl.Expr:
    """The cause of waiting before a piece of stage work, from its flags; null flags: no work is left.

    In the steady part a rank that nobody outworks waits for no slow stage: if its wait is no longer than the messages
    of all ranks there and back (each at most `message_ns`), it is these that are late; else it is the order of work.
    """
    by_messages = ~pl.col("is_outworked") & (waited_ns <= 2 * num_ranks * message_ns)
    return (
        pl.when(pl.col("is_first").fill_null(False))
        .then(pl.lit(str(Cause.WARM_UP)))
        .when(pl.col("is_draining").fill_null(True))
        .then(pl.lit(str(Cause.DRAIN)))
        .when(by_messages.fill_null(False))
        .then(pl.lit(str(Cause.LATE_P2P)))
        .when(pl.col("is_outworked"))
        .then(pl.lit(str(Cause.SLOW_STAGE)))
        .otherwise(pl.lit(str(Cause.ORDER)))
    )


def phase(trace: Trace, claims: pl.DataFrame, message_ns: int) -> pl.DataFrame:
    """The claims with `cause` by the phase of the rank: what it does after the wait."""
    following = stage_work(trace).select("rank", "start_ns", "is_first", "is_draining", "is_outworked")
    waits = claims.sort("start_ns", maintain_order=True).join_asof(
        following, on="start_ns", by="rank", strategy="forward", check_sortedness=False
    )  # fmt: skip
    waited_ns = pl.col("end_ns") - pl.col("start_ns")
    return waits.with_columns(waiting_cause(waited_ns, message_ns, trace.meta.mesh.pp).alias("cause"))


def dependencies(trace: Trace) -> pl.DataFrame:
    """Stage work that needs another rank's result: columns of the work, `from_rank` and `ready_ns` (result computed).

    A forward needs the forward of the stage before on the same microbatch, a backward the gradient of the stage after.
    """
    work = stage_work(trace)
    free_ns = pl.col("end_ns").cum_max().shift(1).over("rank").alias("free_ns")
    work = work.with_columns(free_ns)
    key = ["pipeline", "step", "microbatch", "stage", "is_forward"]
    gives = pl.col("is_forward") | pl.col("kind").is_in(_GRADIENT)
    next_stage = pl.when(pl.col("is_forward")).then(pl.col("stage") + 1).otherwise(pl.col("stage") - 1).alias("stage")
    results = work.filter(gives).select(
        *("pipeline", "step", "microbatch", next_stage, "is_forward"),
        *(pl.col("rank").alias("from_rank"), pl.col("end_ns").alias("ready_ns")),
    )
    results = results.unique(key, keep="first")
    needed = work.filter(gives).join(results, on=key, how="inner")
    return needed.filter(pl.col("from_rank") != pl.col("rank"))
