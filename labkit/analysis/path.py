"""The critical path across ranks: what determined when a step ended.

In: a Trace. Out: a table of segments, in order of time, that reach from a step's first start to its last end without a
hole. Shortening anything that is not on it does not end the step sooner.

The path is walked backwards from the last end. While its rank works, it stays; where the rank waited for another one,
it goes on there; a message or a sync on its way is a segment of its own.

    rank 0  work 0---4   sync 4-------8      path: rank 1 work 0-6, sync 6-8
    rank 1  work 0------6  sync 6-----8      (rank 0 waited from 4 to 6 for rank 1)
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import polars as pl

from labkit.analysis.activity import WORK_KINDS, Activity, activities
from labkit.analysis.cause import Cause
from labkit.analysis.gaps import gaps
from labkit.analysis.paint import paint
from labkit.trace import Trace

WORK = "work"
OUTSIDE = "outside a step"

_PATH = {
    "rank": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "duration_ns": pl.Int64,
    "what": pl.String,
    "kind": pl.String,
    "layer": pl.String,
    "stage": pl.Int32,
    "microbatch": pl.Int32,
    "op": pl.String,
}

_PASSED_ON = (Cause.WARM_UP, Cause.DRAIN, Cause.SLOW_STAGE, Cause.STRAGGLER)
"""Causes that mean: another rank had to do something first."""


@dataclass(frozen=True)
class _Lane:
    """A rank's pieces of time in order, touching or not: `starts`, `ends` and what each is."""

    starts: list[int]
    ends: list[int]
    pieces: list[dict]

    def at(self, t_ns: int) -> int | None:
        """The piece that ends at `t_ns` or in which it lies."""
        i = bisect_left(self.ends, t_ns)
        return i if i < len(self.starts) and self.starts[i] < t_ns else None

    def before(self, t_ns: int) -> int:
        """End of the last piece that ends before `t_ns`; -1 if there is none."""
        i = bisect_left(self.ends, t_ns) - 1
        return self.ends[i] if i >= 0 else -1


def critical_path(trace: Trace, step: int | None = None) -> pl.DataFrame:
    """The segments that determined the end of `step` (the last one, if not given; all time, where steps are not told).

    Columns rank, start_ns, end_ns, duration_ns, what ("work", a `Cause`, or "outside a step"), and of the event: kind,
    layer, stage, microbatch, op. The durations add up to the step's time from its first start to its last end.
    """
    lanes = _lanes(trace)
    start_ns, end_ns, rank = _ends_of_step(trace, step)
    segments = []
    seen: set[int] = set()
    t_ns = end_ns
    while t_ns > start_ns:
        piece, since_ns = _piece(lanes[rank], t_ns)
        by_rank = piece.get("by_rank")
        if piece["what"] in _PASSED_ON and by_rank in lanes and by_rank != rank and by_rank not in seen:
            seen.add(rank)
            rank = by_rank
            continue
        since_ns = max(since_ns, start_ns)
        times = {"rank": rank, "start_ns": since_ns, "end_ns": t_ns, "duration_ns": t_ns - since_ns}
        segments.append(piece | times)
        seen, t_ns = set(), since_ns
    rows = [[segment.get(name) for name in _PATH] for segment in reversed(segments)]
    return pl.DataFrame(rows, schema=_PATH, orient="row")


def _piece(lane: _Lane, t_ns: int) -> tuple[dict, int]:
    """What a rank did just before `t_ns`, and since when."""
    i = lane.at(t_ns)
    return ({"what": OUTSIDE}, lane.before(t_ns)) if i is None else (lane.pieces[i], lane.starts[i])


def _ends_of_step(trace: Trace, step: int | None) -> tuple[int, int, int]:
    """First start, last end, and the rank that ended last."""
    windows = [(activity.rank, row) for activity in activities(trace) for row in activity.windows.to_dicts()]
    known = sorted({row["step"] for _, row in windows if row["step"] is not None})
    if step is not None and step not in known:
        raise ValueError(f"step {step} is not in the trace: it has {_known(known)}")
    if not windows:
        return 0, 0, 0
    step = known[-1] if step is None and known else step
    mine = [(rank, row) for rank, row in windows if row["step"] == step]
    last_rank, last = max(mine, key=lambda each: (each[1]["end_ns"], -each[0]))
    return min(row["start_ns"] for _, row in mine), last["end_ns"], last_rank


def _known(steps: list[int]) -> str:
    return f"steps {steps[0]} to {steps[-1]}" if steps else "no numbered steps: leave step out"


def _lanes(trace: Trace) -> dict[int, _Lane]:
    """Every rank's work and gaps in order of time."""
    idle = gaps(trace).rename({"cause": "what"})
    waits = {key[0]: rows for key, rows in idle.partition_by("rank", as_dict=True).items()}
    lanes = {}
    for activity in activities(trace):
        pieces = _work_pieces(activity) + waits.get(activity.rank, idle.clear()).to_dicts()
        pieces.sort(key=lambda piece: piece["start_ns"])
        ends = [piece["end_ns"] for piece in pieces]
        lanes[activity.rank] = _Lane([piece["start_ns"] for piece in pieces], ends, pieces)
    return lanes


def _work_pieces(activity: Activity) -> list[dict]:
    """The rank's work, every moment labelled by the innermost event."""
    busy = pl.col("kind").cast(pl.String).is_in([*WORK_KINDS, "kernel"])
    rows = activity.rows.filter(busy).with_columns(pl.col("kind").cast(pl.String), what=pl.lit(WORK))
    rows = rows.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True, maintain_order=True)
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    pieces = paint(activity.work | activity.copy, starts, ends, cuts=activity.windows["start_ns"].to_numpy())
    shown = rows.select("what", "kind", "layer", "stage", "microbatch", "op")[pieces.owner]
    times = pl.DataFrame({"start_ns": pieces.starts, "end_ns": pieces.ends})
    return pl.concat([times, shown], how="horizontal").to_dicts()
