"""Syncs of different ranks that belong together: who came when, who came last.

In: a Trace. Out: one row per collective or per message, and who kept others waiting.

Collectives match by (group, op, sequence number), messages by (sender, receiver, sequence number). Two process groups
of the same ranks count separately, so a number may come twice on a rank: then the n-th on one rank is the n-th on all.
"""

from __future__ import annotations

import polars as pl

from labkit.event import Kind
from labkit.trace import Trace

MESSAGES = ("send", "recv")
_PAIR = ("axis", "sender", "receiver", "seq", "nth")


def _is_message() -> pl.Expr:
    """Whether a sync is a message; one without a named op is taken for a collective."""
    return pl.col("op").is_in(MESSAGES).fill_null(False)


def syncs(trace: Trace) -> pl.DataFrame:
    """All syncs, with their row in the trace (`event`)."""
    return trace.events.with_row_index("event").filter(pl.col("kind").cast(pl.String) == str(Kind.SYNC))


def collective_calls(trace: Trace) -> pl.DataFrame:
    """Every rank's part in every collective of more than one rank, with the `call` it belongs to."""
    names = pl.col("group").list.eval(pl.element().cast(pl.String)).list.join(",").alias("members")
    calls = syncs(trace).filter(~_is_message() & (pl.col("group").list.len() > 1))
    calls = calls.with_columns(names, pl.col("op").fill_null("sync"))
    key = ("members", "op", "seq")
    nth = pl.int_range(pl.len(), dtype=pl.Int64).over("rank", *key).alias("nth")
    return calls.sort("start_ns", maintain_order=True).with_columns(nth).with_columns(
        pl.struct(*key, "nth").rank("dense").cast(pl.Int64).alias("call")
    )  # fmt: skip


def collectives(trace: Trace) -> pl.DataFrame:
    """One row per collective: when its first and its last rank came, how far apart, and when it was complete.

    Columns axis, op, group, seq, step, size_bytes, dtype; found (ranks of the group in the trace), first_rank,
    first_ns, straggler (the rank that came last), last_ns, skew_ns (last - first), end_ns (last completion),
    transfer_ns (end - last: nobody was missing any more, so this is the sync itself).

    An all_reduce issued at 2 by rank 0 and at 5 by rank 1, complete at 9: straggler 1, skew 3, transfer 4.
    """
    by_time = pl.col("rank").sort_by("start_ns", "rank")
    table = collective_calls(trace).group_by("call").agg(
        *(pl.col(name).first() for name in ("axis", "op", "group", "seq", "step", "size_bytes", "dtype")),
        pl.len().cast(pl.Int32).alias("found"),
        by_time.first().alias("first_rank"),
        pl.col("start_ns").min().alias("first_ns"),
        by_time.last().alias("straggler"),
        pl.col("start_ns").max().alias("last_ns"),
        (pl.col("start_ns").max() - pl.col("start_ns").min()).alias("skew_ns"),
        pl.col("end_ns").max(),
    )  # fmt: skip
    transfer = (pl.col("end_ns") - pl.col("last_ns")).alias("transfer_ns")
    return table.with_columns(transfer).drop("call").sort("first_ns", "seq")


def message_ends(trace: Trace) -> pl.DataFrame:
    """Every send and recv, with sender and receiver, and `nth` of this pair and number."""
    is_send = pl.col("op") == "send"
    ends = syncs(trace).filter(_is_message()).with_columns(
        pl.when(is_send).then("rank").otherwise("peer").alias("sender"),
        pl.when(is_send).then("peer").otherwise("rank").alias("receiver"),
    )  # fmt: skip
    nth = pl.int_range(pl.len(), dtype=pl.Int64).over("op", "sender", "receiver", "seq").alias("nth")
    return ends.sort("start_ns", maintain_order=True).with_columns(nth)


def messages(trace: Trace) -> pl.DataFrame:
    """One row per message whose send and recv are both in the trace.

    Columns axis, sender, receiver, seq, step, stage, microbatch, size_bytes, dtype; send_ns, recv_ns (when each was
    issued), skew_ns (recv_ns - send_ns: positive where the data waited for the receiver), late_rank (who came last),
    end_ns (the receiver had it), transfer_ns (end - the later of the two issues).

    Sent at 7, asked for at 2, there at 8: skew -5, late_rank the sender, transfer 1.
    """
    ends = message_ends(trace)
    sent = ends.filter(pl.col("op") == "send").select(*_PAIR, pl.col("start_ns").alias("send_ns"))
    received = ends.filter(pl.col("op") == "recv").rename({"start_ns": "recv_ns"})
    both = received.join(sent, on=_PAIR, how="inner", nulls_equal=True)
    sender_late = pl.col("send_ns") > pl.col("recv_ns")
    return both.select(
        *("axis", "sender", "receiver", "seq", "step", "stage", "microbatch", "size_bytes", "dtype"),
        *("send_ns", "recv_ns", (pl.col("recv_ns") - pl.col("send_ns")).alias("skew_ns")),
        pl.when(sender_late).then("sender").otherwise("receiver").alias("late_rank"),
        "end_ns",
        (pl.col("end_ns") - pl.max_horizontal("send_ns", "recv_ns")).alias("transfer_ns"),
    ).sort("send_ns", "sender", "receiver", "seq")


def stragglers(trace: Trace) -> pl.DataFrame:
    """For each rank and axis: how often it came last to a collective, and how long the first one waited for it.

    Columns rank, axis, collectives (it took part in), times_last, skew_ns (sum over the collectives it was last in).
    Collectives to which all came at the same moment, or with ranks missing from the trace, have no straggler.
    """
    calls = collective_calls(trace)
    parts = calls.group_by("rank", "axis").agg(pl.col("call").n_unique().cast(pl.Int64).alias("collectives"))
    known = (pl.col("skew_ns") > 0) & (pl.col("found") == pl.col("group").list.len())
    lasts = collectives(trace).filter(known).group_by(pl.col("straggler").alias("rank"), "axis")
    lasts = lasts.agg(pl.len().cast(pl.Int64).alias("times_last"), pl.col("skew_ns").sum())
    table = parts.join(lasts, on=["rank", "axis"], how="left", nulls_equal=True)
    return table.with_columns(pl.col("times_last", "skew_ns").fill_null(0)).sort("axis", "rank")


def unmatched_syncs(trace: Trace) -> pl.DataFrame:
    """Syncs that do not have their counterparts: a collective missing on a member, a send without its receive.

    Collectives match by (group, sequence number), messages by (sender, receiver, sequence number). Empty if all do.
    """
    all_syncs = trace.of("sync")
    is_message = pl.col("op").is_in(["send", "recv"])
    collectives = all_syncs.filter(~is_message).with_columns(pl.len().over("group", "seq", "op").alias("found"))
    lonely = collectives.filter(pl.col("found") % pl.col("group").list.len() != 0).drop("found")
    sender = pl.when(pl.col("op") == "send").then("rank").otherwise("peer")
    receiver = pl.when(pl.col("op") == "send").then("peer").otherwise("rank")
    messages = all_syncs.filter(is_message).with_columns(sender.alias("from"), receiver.alias("to"))
    pair = ("group", "from", "to", "seq")
    odd = messages.filter((pl.len().over(pair) % 2 != 0) | (pl.col("op").n_unique().over(pair) != 2))
    return pl.concat([lonely, odd.drop("from", "to")])
