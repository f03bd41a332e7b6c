"""Clocks of different files brought together by what all ranks must have ended at the same time.

In: rows of all ranks. Out: ns to add to each rank's times, and notes.

A collective ends on all its ranks at nearly the same moment. So the median difference of those ends tells how far two
clocks are apart, and its spread how sure that is. Shifts are whole us, so that rounding to us is not touched.
"""

from __future__ import annotations

import polars as pl

_SMALLEST_NS = 200_000
"""Clocks closer than this are left alone: ranks of one host differ less, and ends of collectives spread as much."""

_SURE = 0.5
"""The spread of the differences may be this share of their median."""

_ENDING_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "send_recv")


def shifts(rows: pl.DataFrame) -> tuple[dict[int, int], list[str]]:
    """{rank: ns to add}, for ranks whose clock is off from the lowest rank's, directly or through others."""
    ranks = rows["rank"].unique().sort().to_list()
    if len(ranks) < 2:
        return {}, []
    ends = rows.filter((pl.col("kind") == "sync") & pl.col("op").is_in(_ENDING_TOGETHER)).with_columns(
        pl.col("group").list.eval(pl.element().cast(pl.String)).list.join(",").alias("members")
    )
    found = {ranks[0]: 0}
    notes: list[str] = []
    for rank in ranks[1:]:
        shift, note = _shift(ends, found, rank)
        found[rank] = shift
        notes += [note] if note else []
    notes += _far_apart(rows, found)
    return {rank: shift for rank, shift in found.items() if shift}, notes


def _shift(ends: pl.DataFrame, known: dict[int, int], rank: int) -> tuple[int, str | None]:
    """ns to add to `rank`, from collectives it shares with a rank already placed."""
    mine = ends.filter(pl.col("rank") == rank)
    for other, placed_ns in known.items():
        both = mine.join(ends.filter(pl.col("rank") == other), on=["members", "op", "seq"], suffix="_other")
        ahead = (both["end_ns"] - both["end_ns_other"]) - placed_ns
        if ahead.is_empty():
            continue
        median, spread = float(ahead.median()), float((ahead - ahead.median()).abs().median())
        if abs(median) < _SMALLEST_NS:
            return 0, None
        if spread > _SURE * abs(median):
            return 0, None
        shift = -round(median / 1000) * 1000
        return shift, (
            f"rank {rank}: clock {abs(median) / 1e6:.2f} ms {'ahead of' if median > 0 else 'behind'} rank {other}'s by "
            f"the ends of {len(ahead)} collectives (spread {spread / 1e6:.3f} ms): shifted"
        )
    return 0, None


def _far_apart(rows: pl.DataFrame, found: dict[int, int]) -> list[str]:
    """Ranks that share no time with the first one even now."""
    shift = pl.col("rank").replace_strict(found, return_dtype=pl.Int64)
    start, end = pl.col("start_ns").min() + shift.first(), pl.col("end_ns").max() + shift.first()
    times = rows.group_by("rank").agg(start.alias("start"), end.alias("end"))
    first = times.sort("rank").row(0, named=True)
    apart = times.filter((pl.col("start") > first["end"]) | (pl.col("end") < first["start"]))
    if apart.is_empty():
        return []
    names = ", ".join(map(str, apart["rank"].sort()))
    return [f"ranks {names} share no time with rank {first['rank']} and no collective: files of different runs?"]
