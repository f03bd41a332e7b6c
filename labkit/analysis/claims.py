"""What a rank may be waiting for, and until when: claims on its gaps.

In: a Trace. Out: a table of claims (columns `CLAIMS`). `gaps` gives each moment of a gap to one claim.

A wait has two parts, cut at `ready_ns`, the moment from which only the link was missing: the last rank's arrival at a
collective, the issue of the partner's end of a message. Where the trace tells when ranks were blocked (kind `wait`),
claims reach over those times; else over the whole sync.

    rank 0  all_reduce issued 2 ------------- blocked ------------- 9
    rank 1  all_reduce issued           5 ------------------------- 9
            claims on rank 0: 2 to 5 straggler, by rank 1; 5 to 9 bandwidth-bound
"""

from __future__ import annotations

import polars as pl

from labkit.analysis.cause import Cause
from labkit.analysis.matching import collective_calls, message_ends, syncs
from labkit.analysis.stages import dependencies, phase, waiting_cause
from labkit.analysis.steps import step_ends
from labkit.event import STAGE_KINDS
from labkit.trace import Trace

CLAIMS = {
    "rank": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "until_ns": pl.Int64,  # end of the whole wait: where waits overlap, the one that ends first is the one waited for
    "cause": pl.String,
    "by_rank": pl.Int32,  # who was waited for
    "op": pl.String,
    "axis": pl.String,
    "size_bytes": pl.Int64,
    "microbatch": pl.Int32,
    "num_ranks": pl.Int64,
    "is_sent": pl.Boolean,  # only the link was missing
    "of_step": pl.Int32,  # the step it belongs to, where it may reach into the next one
    "event": pl.UInt32,  # the sync's row in the trace
}

_SYNC = ("op", "axis", "size_bytes", "microbatch", "num_ranks", "event")


def sync_claims(trace: Trace) -> pl.DataFrame:
    """Claims of all collectives and messages."""
    parts = [_split(_blocked(trace, calls)) for calls in (_collectives(trace), _messages(trace), _unmatched(trace))]
    return _with_phase(trace, pl.concat(parts))


def _collectives(trace: Trace) -> pl.DataFrame:
    """Every rank's part in every collective; `ready_ns` is the last rank's arrival, null if one is missing."""
    calls = collective_calls(trace)
    num_ranks = pl.col("group").list.len().cast(pl.Int64)
    whole = pl.col("rank").n_unique().over("call") == num_ranks
    last_ns = pl.col("start_ns").max().over("call")
    straggler = pl.col("rank").sort_by("start_ns", "rank").last().over("call")
    return calls.with_columns(
        num_ranks.alias("num_ranks"),
        pl.when(whole).then(last_ns).alias("ready_ns"),
        pl.when(whole).then(straggler).alias("by_rank"),
    )


def _messages(trace: Trace) -> pl.DataFrame:
    """Every end of every message; `ready_ns` is when the other end was issued, null if it is not in the trace."""
    ends = message_ends(trace)
    key = ["sender", "receiver", "axis", "seq", "nth"]
    opposite = pl.when(pl.col("op") == "send").then(pl.lit("recv")).otherwise(pl.lit("send")).alias("op")
    partners = ends.select(*key, opposite, pl.col("start_ns").alias("ready_ns")).unique([*key, "op"], keep="first")
    ends = ends.join(partners, on=[*key, "op"], how="left", nulls_equal=True)
    two = pl.lit(2, dtype=pl.Int64).alias("num_ranks")
    return ends.with_columns(_members().alias("members"), pl.col("peer").alias("by_rank"), two)


def _unmatched(trace: Trace) -> pl.DataFrame:
    """Syncs of a group that the trace does not tell, or of this rank alone: nobody can be named."""
    alone = pl.col("group").list.len().fill_null(0) < 2
    is_message = pl.col("op").is_in(["send", "recv"]).fill_null(False)
    unmatched = syncs(trace).filter(alone & ~is_message)
    nobody = pl.lit(None, dtype=pl.Int32).alias("by_rank")
    own = pl.when(pl.col("group").list.len() == 1).then("start_ns").alias("ready_ns")
    size = pl.col("group").list.len().cast(pl.Int64).alias("num_ranks")
    return unmatched.with_columns(_members().alias("members"), own, nobody, size)


def _members() -> pl.Expr:
    return pl.col("group").list.eval(pl.element().cast(pl.String)).list.join(",")


def _blocked(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """When a rank stood in each sync: its waits; in a trace without any, the sync from issue to completion."""
    columns = ["rank", "start_ns", "end_ns", "ready_ns", "sync_end_ns", "by_rank", *_SYNC]
    calls = calls.with_columns(pl.col("end_ns").alias("sync_end_ns"))
    waits = trace.of("wait")
    if waits.is_empty():
        return calls.select(columns)
    key = ["rank", "members", "op", "peer", "seq"]
    waits = waits.select("rank", _members().alias("members"), "op", "peer", "seq", "start_ns", "end_ns")
    told = calls.select(*key, "start_ns", "ready_ns", "sync_end_ns", "by_rank", "axis", "size_bytes", "microbatch",
                        "num_ranks", "event").sort("start_ns")  # fmt: skip
    none = [pl.col("peer").fill_null(-1), pl.col("seq").fill_null(-1), pl.col("members", "op").fill_null("")]
    joined = waits.with_columns(none).sort("start_ns").join_asof(
        told.with_columns(none), on="start_ns", by=key, strategy="backward", check_sortedness=False
    )  # fmt: skip
    return joined.filter(pl.col("sync_end_ns").is_not_null()).select(columns)


def _split(blocked: pl.DataFrame) -> pl.DataFrame:
    """Cut every wait at its `ready_ns`; who completed before the last rank came did not wait for it."""
    whole = (pl.col("ready_ns") > pl.col("sync_end_ns")) & (pl.col("sync_end_ns") > pl.col("start_ns"))
    ready = pl.when(whole).then("start_ns").otherwise(pl.col("ready_ns").clip("start_ns", "end_ns"))
    blocked = blocked.with_columns(ready.alias("ready_ns"), pl.col("end_ns").alias("until_ns"))
    is_message = pl.col("op").is_in(["send", "recv"]).fill_null(False)
    early = blocked.filter(pl.col("ready_ns").is_not_null()).with_columns(
        pl.col("ready_ns").alias("end_ns"), pl.lit(str(Cause.STRAGGLER)).alias("cause"), pl.lit(False).alias("is_sent")
    )
    late_cause = pl.when(is_message).then(pl.lit(str(Cause.LATE_P2P))).otherwise(pl.lit(str(Cause.BANDWIDTH)))
    late_cause = pl.when(pl.col("ready_ns").is_null()).then(pl.lit(str(Cause.PARTNER))).otherwise(late_cause)
    late = blocked.with_columns(pl.coalesce("ready_ns", "start_ns").alias("start_ns"), late_cause.alias("cause"),
                                pl.col("ready_ns").is_not_null().alias("is_sent"))  # fmt: skip
    claims = pl.concat([early, late]).filter(pl.col("end_ns") > pl.col("start_ns"))
    return _completed(claims)


def _with_phase(trace: Trace, claims: pl.DataFrame) -> pl.DataFrame:
    """Pipeline messages that are not sent yet: why is told by the phase the rank is in."""
    is_message = pl.col("op").is_in(["send", "recv"]).fill_null(False)
    in_pipeline = is_message & (pl.col("cause") == str(Cause.STRAGGLER)) & pl.col("axis").fill_null("pp").eq("pp")
    if trace.meta.mesh.pp == 1:
        return claims
    waiting = phase(trace, claims.filter(in_pipeline), _longest_message_ns(claims))
    return pl.concat([claims.filter(~in_pipeline), waiting.select(list(CLAIMS))])


def _longest_message_ns(claims: pl.DataFrame) -> int:
    late = claims.filter(pl.col("cause") == str(Cause.LATE_P2P))
    return (late["end_ns"] - late["start_ns"]).max() or 0


def stage_claims(trace: Trace) -> pl.DataFrame:
    """Claims of a pipeline whose messages were not recorded (a planned schedule): from the order of its work.

    A rank that is free before the result it needs is computed waits for the stage that computes it; after that, for
    the result to arrive.
    """
    if trace.meta.mesh.pp == 1 or not _messages(trace).is_empty():
        return pl.DataFrame(schema=CLAIMS)
    waits = dependencies(trace).with_columns(
        pl.col("free_ns").fill_null(_BEFORE_ALL),
        *(pl.col("start_ns").alias("until_ns"), pl.col("from_rank").alias("by_rank")),
        *(pl.lit("recv").alias("op"), pl.lit("pp").alias("axis"), pl.lit(2).alias("num_ranks")),
    )
    ready = pl.col("ready_ns").clip("free_ns", "until_ns")
    late_cause = pl.lit(str(Cause.LATE_P2P)).alias("cause")
    late = waits.with_columns(
        ready.alias("start_ns"), pl.col("until_ns").alias("end_ns"), late_cause, pl.lit(True).alias("is_sent")
    )
    cause = waiting_cause(ready - pl.col("free_ns"), _longest_message_ns(late), trace.meta.mesh.pp)
    early = waits.with_columns(
        pl.col("free_ns").alias("start_ns"), ready.alias("end_ns"), cause.alias("cause"), pl.lit(False).alias("is_sent")
    )
    return _completed(pl.concat([early, late]).filter(pl.col("end_ns") > pl.col("start_ns")))


_BEFORE_ALL = -(2**62)
"""Start of a claim that reaches back to the start of the window."""


def ending_claims(trace: Trace) -> pl.DataFrame:
    """Ranks that have ended a step wait for the last one that shares it, at most until their next stage's work.

    A rank that enters its next step meanwhile and stands still there still waits for the step before to drain.
    """
    if (trace.meta.mesh.pp == 1 and trace.of("step").height) or trace.of("kernel").height:
        return pl.DataFrame(schema=CLAIMS)
    begun = trace.of(*STAGE_KINDS).sort("start_ns").select("rank", "start_ns", pl.col("start_ns").alias("begun_ns"))
    ends = step_ends(trace).with_columns(pl.col("end_ns").alias("start_ns")).sort("start_ns")
    ends = ends.join_asof(begun, on="start_ns", by="rank", strategy="forward", check_sortedness=False)
    until = pl.min_horizontal("last_ns", "begun_ns")  # without a next one: until the last rank has ended
    cause = Cause.DRAIN if trace.meta.mesh.pp > 1 else Cause.STRAGGLER
    claims = ends.with_columns(until.alias("end_ns"), until.alias("until_ns"), pl.lit(str(cause)).alias("cause"))
    claims = claims.with_columns(pl.col("last_rank").alias("by_rank"), pl.col("step").alias("of_step"))
    return _completed(claims.filter(pl.col("end_ns") > pl.col("start_ns")))


def _completed(claims: pl.DataFrame) -> pl.DataFrame:
    """The columns of a claim; those that were not told are null."""
    absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in CLAIMS.items() if name not in claims.columns]
    return claims.with_columns(absent).select(list(CLAIMS)).cast(CLAIMS)
