"""How fast syncs were: algorithm and bus bandwidth, as nccl-tests defines them.

In: a Trace. Out: a table, a row per collective or message.
"""

from __future__ import annotations

import polars as pl

from labkit.analysis.matching import collectives, messages
from labkit.link import wire_bytes
from labkit.trace import Trace


def bandwidth(trace: Trace) -> pl.DataFrame:
    """Bytes per second of every sync whose ranks are all in the trace.

    Columns axis, op, step, num_ranks, size_bytes, transfer_ns (from the last rank's arrival to completion, so waiting
    for a straggler does not count as slowness), algorithm_bytes_s (size / time) and bus_bytes_s: what a link carries,
    algorithm bandwidth x 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter and all_to_all, else x 1.
    Null where no time passed, or the size is not known.

    1000 bytes all-reduced by 4 ranks in 1 us: algorithm 1 GB/s, bus 1.5 GB/s.
    """
    num_ranks = pl.col("group").list.len().cast(pl.Int64).alias("num_ranks")
    columns = ("axis", "op", "step", "num_ranks", "size_bytes", "transfer_ns")
    calls = collectives(trace).with_columns(num_ranks).filter(pl.col("found") == pl.col("num_ranks"))
    sent = messages(trace).with_columns(pl.lit("send").alias("op"), pl.lit(2, dtype=pl.Int64).alias("num_ranks"))
    table = pl.concat([calls.select(columns), sent.select(columns)])
    timed = (pl.col("transfer_ns") > 0) & (pl.col("size_bytes") > 0)
    rate = pl.when(timed).then(pl.col("size_bytes") / (pl.col("transfer_ns") / 1e9)).alias("algorithm_bytes_s")
    factors = _bus_factors(table)
    table = table.with_columns(rate).join(factors, on=["op", "num_ranks"], how="left")
    bus = (pl.col("algorithm_bytes_s") * pl.col("factor")).alias("bus_bytes_s")
    return table.with_columns(bus).drop("factor")


def _bus_factors(table: pl.DataFrame) -> pl.DataFrame:
    """Bytes on the wire per byte of tensor, for every op and number of ranks in the table."""
    found = table.select("op", "num_ranks").unique()
    factors = [wire_bytes(op, 1, n) for op, n in found.iter_rows()]
    return found.with_columns(pl.Series("factor", factors, dtype=pl.Float64))
