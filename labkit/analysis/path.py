"""The critical path across ranks: what determined when a step ended.

In: a Trace. Out: a table of segments, in order of time, that reach to a step's last end without a hole: from the end of
the step before, or from the first start of the first step. So the paths of all steps together cover all time once.
Shortening anything that is not on it does not end the step sooner.

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
    "event": pl.UInt32,
}


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

    Columns rank, start_ns, end_ns, duration_ns, what ("work", a `Cause`, or "outside a step"), `event` (its row in
    `trace.events`), and of this event kind, layer, stage, microbatch, op. The event is the innermost work, the sync
    that was waited for, or, where the rank waited for nobody, its step; null outside. Each segment ends where the next
    one starts; together they last from the end of the step before (or the step's first start) to the step's end.
    """
    lanes = _lanes(trace)
    start_ns, end_ns, rank = _ends_of_step(trace, step)
    segments = []
    seen: set[int] = set()
    t_ns = end_ns
    while t_ns > start_ns:
        piece, since_ns = _piece(lanes[rank], t_ns)
        by_rank = _waited_for(piece)
        if by_rank in lanes and by_rank != rank and by_rank not in seen:
            seen.add(rank)
            rank = by_rank
            continue
        since_ns = max(since_ns, start_ns)
        times = {"rank": rank, "start_ns": since_ns, "end_ns": t_ns, "duration_ns": t_ns - since_ns}
        segments.append(piece | times)
        seen, t_ns = set(), since_ns
    rows = [[segment.get(name) for name in _PATH] for segment in reversed(segments)]
    return pl.DataFrame(rows, schema=_PATH, orient="row")


def _waited_for(piece: dict) -> int | None:
    """The rank that had to do something first; None in work, and where only the sync itself took its time."""
    on_its_way = piece.get("is_sent") or piece["what"] == Cause.PARTNER
    return None if on_its_way else piece.get("by_rank")


def _piece(lane: _Lane, t_ns: int) -> tuple[dict, int]:
    """What a rank did just before `t_ns`, and since when."""
    i = lane.at(t_ns)
    return ({"what": OUTSIDE}, lane.before(t_ns)) if i is None else (lane.pieces[i], lane.starts[i])


def _ends_of_step(trace: Trace, step: int | None) -> tuple[int, int, int]:
    """From when, until when, and the rank that ended last."""
    of_ranks = [each.windows.with_columns(rank=pl.lit(each.rank)) for each in activities(trace)]
    windows = pl.concat(of_ranks) if of_ranks else pl.DataFrame()
    known = windows["step"].drop_nulls().unique().sort().to_list() if of_ranks else []
    if step is not None and step not in known:
        raise ValueError(f"step {step} is not in the trace: it has {_known(known)}")
    if windows.is_empty():
        return 0, 0, 0
    step = known[-1] if step is None and known else step
    mine = windows.filter(pl.col("step").eq_missing(step))
    last = mine.sort("end_ns", pl.col("rank"), descending=[True, False]).row(0, named=True)
    before = windows.filter(pl.col("step") < pl.lit(step, dtype=pl.Int32))
    begun_ns, before_ns = mine["start_ns"].min(), before["end_ns"].max()
    is_within = before_ns is not None and begun_ns < before_ns < last["end_ns"]
    return before_ns if is_within else begun_ns, last["end_ns"], last["rank"]


def _known(steps: list[int]) -> str:
    return f"steps {steps[0]} to {steps[-1]}" if steps else "no numbered steps: leave step out"


def _lanes(trace: Trace) -> dict[int, _Lane]:
    """Every rank's work and gaps in order of time."""
    idle = gaps(trace).rename({"cause": "what"})
    waits = {key[0]: rows for key, rows in idle.partition_by("rank", as_dict=True).items()}
    lanes = {}
    for activity in activities(trace):
        still = _in_steps(activity, waits.get(activity.rank, idle.clear()))
        pieces = _work_pieces(activity) + still.to_dicts()
        pieces.sort(key=lambda piece: piece["start_ns"])
        ends = [piece["end_ns"] for piece in pieces]
        lanes[activity.rank] = _Lane([piece["start_ns"] for piece in pieces], ends, pieces)
    return lanes


def _in_steps(activity: Activity, still: pl.DataFrame) -> pl.DataFrame:
    """Gaps without a sync get the event of the step they lie in."""
    is_step = pl.col("kind").cast(pl.String) == "step"
    steps = activity.rows.filter(is_step).sort("start_ns").select(
        "start_ns", pl.col("end_ns").alias("step_end_ns"), pl.col("event").alias("step_event")
    )  # fmt: skip
    found = still.sort("start_ns").join_asof(steps, on="start_ns", strategy="backward")
    inside = pl.when(pl.col("end_ns") <= pl.col("step_end_ns")).then("step_event")
    return found.with_columns(pl.coalesce("event", inside).alias("event"))


def _work_pieces(activity: Activity) -> list[dict]:
    """The rank's work, every moment labelled by the innermost event."""
    busy = pl.col("kind").cast(pl.String).is_in([*WORK_KINDS, "kernel"])
    rows = activity.rows.filter(busy).with_columns(pl.col("kind").cast(pl.String), what=pl.lit(WORK))
    rows = rows.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True, maintain_order=True)
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    pieces = paint(activity.work | activity.copy, starts, ends, cuts=activity.windows["start_ns"].to_numpy())
    shown = rows.select("what", "kind", "layer", "stage", "microbatch", "op", "event")[pieces.owner]
    times = pl.DataFrame({"start_ns": pieces.starts, "end_ns": pieces.ends})
    return pl.concat([times, shown], how="horizontal").to_dicts()
