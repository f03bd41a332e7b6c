"""A captured trace as a program: event rows in, marks, syncs and own work out.

The order of work of a rank is the order of its times. At equal times (an emulated device has many) it follows from
what can be: a wait ends, spans end (inner ones first), syncs are issued, the rank may wait, spans start (outer first).
Waits are not work: they vanish, and come back from the graph. A sync that nobody was seen to wait for (it was complete
already) still has to be waited for under other conditions: a received message before the stage that uses it, a
gradient bucket at the end of its backward, a send with the next receive of its batch, or before the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from labkit.event import LAYER_KINDS, STAGE_KINDS, Kind
from labkit.replay import program as p
from labkit.replay.changes import Changes
from labkit.replay.graph import COLLECTIVE, RECV, SEND, ReplayError
from labkit.replay.syncs import Matched, Wiring, match
from labkit.trace import Trace

_LEVEL = {
    Kind.STEP: 0,
    **dict.fromkeys((Kind.LOAD, Kind.ZERO_GRAD, Kind.LOSS, Kind.OPTIMIZER, *STAGE_KINDS), 1),
    **dict.fromkeys((kind for kind in LAYER_KINDS if kind not in (Kind.LOSS, Kind.RECOMPUTE)), 2),
    Kind.RECOMPUTE: 3,
}
"""How deep a kind of span is nested."""

_COMPUTE = {*STAGE_KINDS, *LAYER_KINDS, Kind.OPTIMIZER}
_ORDER = {"wait": 0, "end": 1, "instant": 5, "instant_end": 9, "send": 13, "issue": 14, "may_wait": 15, "start": 16}
"""Order of marks at one time; spans add their level (starts) or 3 - level (ends)."""

_TIME_BITS, _ORDER_BITS = 46, 6


@dataclass(frozen=True)
class Captured:
    """A trace ready to be played: its program, its rows from before the first step, and what had to be repaired."""

    program: p.Program
    setup: pl.DataFrame
    repairs: tuple[str, ...]


def captured(trace: Trace, changes: Changes) -> Captured:
    """The program of a trace under `changes`. Raises ReplayError for a trace that cannot be replayed."""
    plan = trace.meta.plan or {}
    rows, setup, repairs = _whole_steps(trace)
    wiring = Wiring.of(plan, trace.meta.source)
    matched = match(rows, wiring, changes)
    if matched.lonely:
        repairs += (f"{matched.lonely} syncs lack a counterpart: they complete with those members that are there",)
    implied = _implied_waits(rows, matched, plan)
    marks, times = _marks(rows, matched, implied)
    marks = _with_own_work(rows, marks, times, matched, changes)
    ranks = trace.meta.num_ranks
    first = np.searchsorted(marks.rank, np.arange(ranks))
    program = p.Program(
        rows.drop("row"), marks, matched.syncs(), times[first], matched.rendezvous, _behind(rows.height, matched)
    )
    return Captured(program, setup, repairs)


def _whole_steps(trace: Trace) -> tuple[pl.DataFrame, pl.DataFrame, tuple[str, ...]]:
    """Rows of the steps that all ranks finished, rows from before, and what was left out."""
    steps = trace.of(Kind.STEP)
    missing = sorted(set(range(trace.meta.num_ranks)) - set(steps["rank"].unique().to_list()))
    if missing:
        raise ReplayError(
            f"the trace has no finished step of rank {', '.join(map(str, missing[:8]))} (of {trace.meta.num_ranks} "
            f"ranks): a replay needs every rank, recorded with 'compute' and 'sync'; run it again, or merge all parts"
        )
    ranks = steps.group_by("step").agg(pl.col("rank").n_unique())
    whole = ranks.filter(pl.col("rank") == trace.meta.num_ranks)["step"]
    if whole.is_empty():
        raise ReplayError("no step was finished by all ranks: run at least one whole step")
    events = trace.events.filter(pl.col("step").is_in(whole.implode()))
    cut = trace.events["step"].n_unique() - trace.events["step"].is_null().any() - len(whole)
    repairs = (f"{cut} steps that not all ranks finished are left out",) if cut else ()
    if trace.meta.dropped_events:
        repairs += (f"{trace.meta.dropped_events:,} events were dropped when the run was recorded",)
    return events.with_row_index("row"), trace.events.filter(pl.col("step").is_null()), repairs


# ---- waits that were not seen


def _implied_waits(rows: pl.DataFrame, matched: Matched, plan: Mapping[str, Any]) -> pl.DataFrame:
    """Where a sync without a wait would be waited for: `row` of the sync, `sync`, `t_ns`."""
    waited = matched.waits.select(pl.col("sync_row").alias("row"), pl.col("end_ns").alias("t_ns"))
    waited = waited.group_by("row").agg(pl.col("t_ns").max())
    kinds = matched.table.select("sync", pl.col("kind").alias("sync_kind"))
    issues = matched.issues.select("row", "sync").join(kinds, on="sync", how="left", maintain_order="left")
    about = rows[issues["row"].to_numpy()].select("rank", "step", "stage", "microbatch", "op", "axis", "start_ns")
    issues = issues.hstack(about)
    unseen = issues.join(waited, on="row", how="anti")
    messages = pl.col("axis") == "pp"
    receives = _before_stage(rows, unseen.filter((pl.col("sync_kind") == RECV) & messages))
    sends = unseen.filter((pl.col("sync_kind") == SEND) & messages)
    if plan.get("schedule") == "1f1b":
        seen = issues.filter(pl.col("sync_kind") == RECV).join(waited, on="row")
        sends = _with_batch(rows, sends, pl.concat([seen, receives], how="diagonal"))
    else:
        sends = _before_optimizer(rows, sends)
    others = unseen.filter(~messages | (pl.col("sync_kind") == COLLECTIVE))
    others = _after_backward(rows, others, plan)
    columns = ["row", "sync", "rank", "t_ns"]
    return pl.concat([part.select(columns) for part in (receives, sends, others)])


def _before_stage(rows: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """A received message is waited for before the next work of its stage on its microbatch."""
    by = ["rank", "step", "stage", "microbatch"]
    stages = rows.filter(pl.col("kind").is_in([str(kind) for kind in STAGE_KINDS])).select(
        *by, "start_ns", pl.col("start_ns").alias("t_ns")
    )
    found = receives.sort("start_ns").join_asof(
        stages.sort("start_ns"), on="start_ns", by=by, strategy="forward", check_sortedness=False
    )
    return pl.concat(
        [
            found.filter(pl.col("t_ns").is_not_null()),
            _before_optimizer(rows, found.filter(pl.col("t_ns").is_null()).drop("t_ns")),
        ],
        how="diagonal",
    )


def _before_optimizer(rows: pl.DataFrame, syncs: pl.DataFrame) -> pl.DataFrame:
    """Waited for at the end of the step's work."""
    ends = rows.group_by("rank", "step").agg(
        pl.col("start_ns").filter(pl.col("kind") == Kind.OPTIMIZER).min().alias("t_ns"),
        pl.col("end_ns").filter(pl.col("kind") == Kind.STEP).max().alias("step_end_ns"),
    )
    ends = ends.with_columns(pl.col("t_ns").fill_null(pl.col("step_end_ns"))).drop("step_end_ns")
    joined = syncs.join(ends, on=["rank", "step"], how="left")
    return joined.with_columns(pl.max_horizontal("t_ns", "start_ns").alias("t_ns"))


def _with_batch(rows: pl.DataFrame, sends: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """torch's 1F1B waits for a send together with the receive that was issued with it."""
    batch = ["rank", "step", "start_ns"]
    together = receives.group_by(batch).agg(pl.col("t_ns").max())
    joined = sends.join(together, on=batch, how="left")
    alone = _before_optimizer(rows, joined.filter(pl.col("t_ns").is_null()).drop("t_ns"))
    return pl.concat([joined.filter(pl.col("t_ns").is_not_null()), alone], how="diagonal")


def _after_backward(rows: pl.DataFrame, syncs: pl.DataFrame, plan: Mapping[str, Any]) -> pl.DataFrame:
    """DDP waits for its buckets at the end of backward; everything else is waited for where it is issued."""
    ddp = not plan.get("zero") and plan.get("tp", 1) * plan.get("pp", 1) == 1
    backwards = rows.filter(pl.col("kind") == Kind.STAGE_BACKWARD).select(
        "rank", "start_ns", pl.col("end_ns").alias("backward_end_ns")
    )
    found = syncs.sort("start_ns").join_asof(
        backwards.sort("start_ns"), on="start_ns", by="rank", strategy="backward", check_sortedness=False
    )
    bucket = (pl.col("op") == "all_reduce") & (pl.col("start_ns") <= pl.col("backward_end_ns")) & pl.lit(ddp)
    return found.with_columns(pl.when(bucket).then("backward_end_ns").otherwise("start_ns").alias("t_ns"))


# ---- marks


def _marks(rows: pl.DataFrame, matched: Matched, implied: pl.DataFrame) -> tuple[p.Marks, np.ndarray]:
    """All marks in order, without their own work, and the time of each."""
    parts = [*_span_marks(rows), *_wait_marks(matched), _issue_marks(rows, matched)]
    parts.append(_part(implied, p.IMPLIED_WAIT, "t_ns", _ORDER["may_wait"]))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    t_ns, rank = columns["t_ns"], columns["rank"]
    if t_ns.max() >> _TIME_BITS or t_ns.min() < 0:
        raise ReplayError("the trace's times are negative or span more than 19 hours: give times since its start")
    key = (rank << (_TIME_BITS + _ORDER_BITS)) | (t_ns << _ORDER_BITS) | columns["order"]
    order = np.argsort(key, kind="stable")
    rank, role, row, sync, lag_ns = (columns[name][order] for name in ("rank", "role", "row", "sync", "lag_ns"))
    return p.Marks(rank, role, row, sync, np.zeros(len(order), np.int64), lag_ns), t_ns[order]


def _part(frame: pl.DataFrame, role: int, time: str, order: int | np.ndarray) -> dict[str, np.ndarray]:
    """Marks of one role from a table with `rank`, `row` and perhaps `sync` and `lag_ns`."""

    def column(name: str, default: int) -> np.ndarray:
        return (
            frame[name].cast(pl.Int64).to_numpy() if name in frame.columns else np.full(frame.height, default, np.int64)
        )

    return {
        "rank": column("rank", 0),
        "row": column("row", 0),
        "t_ns": column(time, 0),
        "sync": column("sync", -1),
        "lag_ns": column("lag_ns", 0),
        "role": np.full(frame.height, role, np.int64),
        "order": np.broadcast_to(np.asarray(order, np.int64), (frame.height,)),
    }


def _span_marks(rows: pl.DataFrame) -> list[dict[str, np.ndarray]]:
    spans = rows.filter(~pl.col("kind").is_in(["sync", "wait"])).select("rank", "row", "kind", "start_ns", "end_ns")
    level = _of_kind(spans["kind"], {str(kind): value for kind, value in _LEVEL.items()}, 3)
    instant = (spans["end_ns"] <= spans["start_ns"]).to_numpy()
    starts = np.where(instant, _ORDER["instant"], _ORDER["start"]) + level
    ends = np.where(instant, _ORDER["instant_end"], _ORDER["end"]) + 3 - level
    return [_part(spans, p.START, "start_ns", starts), _part(spans, p.END, "end_ns", ends)]


def _wait_marks(matched: Matched) -> list[dict[str, np.ndarray]]:
    waits = matched.waits
    lag = pl.when(pl.col("blocked")).then("lag_ns").otherwise(0).alias("lag_ns")
    as_was = matched.table.select("sync", "as_was")
    ends = waits.with_columns(lag).join(as_was, on="sync", how="left", maintain_order="left")
    ends = ends.with_columns(pl.when("as_was").then("lag_ns").otherwise(0).alias("lag_ns"))
    starts = waits.select("rank", "row", "start_ns")
    return [
        _part(starts, p.WAIT_START, "start_ns", _ORDER["may_wait"]),
        _part(ends, p.WAIT_END, "end_ns", _ORDER["wait"]),
    ]


def _issue_marks(rows: pl.DataFrame, matched: Matched) -> dict[str, np.ndarray]:
    issues = rows[matched.issues["row"].to_numpy()].select("row", "rank", "op", "start_ns", "seq")
    issues = issues.with_columns(matched.issues["sync"]).sort("seq", maintain_order=True)
    order = np.where((issues["op"] == "send").to_numpy(), _ORDER["send"], _ORDER["issue"])
    return _part(issues, p.ISSUE, "start_ns", order)


def _of_kind(kinds: pl.Series, values: Mapping[str, int], default: int) -> np.ndarray:
    """A number for each kind."""
    names = kinds.dtype.categories.to_list()
    table = np.array([values.get(name, default) for name in names], np.int64)
    return table[kinds.to_physical().to_numpy()]


def _behind(num_rows: int, matched: Matched) -> np.ndarray:
    """How much later than the first member each member saw a collective complete, where its cost is as it was."""
    behind = np.zeros(num_rows, np.int64)
    both = matched.issues.join(
        matched.table.select("sync", "kind", "as_was", pl.col("end_ns").alias("first_ns")), on="sync", how="left"
    ).filter((pl.col("kind") == COLLECTIVE) & pl.col("as_was"))
    behind[both["row"].to_numpy()] = (both["end_ns"] - both["first_ns"]).to_numpy()
    return behind


# ---- own work


def _with_own_work(rows: pl.DataFrame, marks: p.Marks, t_ns: np.ndarray, matched: Matched, changes: Changes) -> p.Marks:
    """The marks with what the rank worked by itself before each, as `changes` would have it."""
    own = np.diff(t_ns, prepend=0)
    own[np.flatnonzero(np.diff(marks.rank, prepend=-1))] = 0
    blocked = np.zeros(rows.height, bool)
    blocked[matched.waits.filter("blocked")["row"].to_numpy()] = True
    waiting = _depth(marks, blocked[marks.row], p.WAIT_START, p.WAIT_END)
    own = np.where(waiting > 0, 0, own)
    kinds = rows["kind"]
    computing = _depth(marks, _of_kind(kinds, dict.fromkeys(map(str, _COMPUTE), 1), 0)[marks.row] == 1, p.START, p.END)
    in_step = _depth(marks, (kinds == "step").to_numpy()[marks.row], p.START, p.END)
    if changes.device_time == "cpu":
        own = _cpu_work(rows, marks, own)
    factor = np.where(computing > 0, changes.compute, 1.0)
    for rank, slower in changes.slow_ranks.items():
        factor = np.where((marks.rank == rank) & (in_step > 0), factor * slower, factor)
    own = np.rint(own * factor).astype(np.int64)
    return p.Marks(marks.rank, marks.role, marks.row, marks.sync, own, marks.lag_ns)


def _depth(marks: p.Marks, which: np.ndarray, start: int, end: int) -> np.ndarray:
    """How many of the chosen spans are open in the interval that ends at each mark."""
    change = np.where(which & (marks.role == start), 1, 0) - np.where(which & (marks.role == end), 1, 0)
    return np.cumsum(change) - change


def _cpu_work(rows: pl.DataFrame, marks: p.Marks, own: np.ndarray) -> np.ndarray:
    """Own work in CPU time: each span's own CPU time, spread over its own time on the clock.

    A span's own CPU time is its CPU time less that of the spans inside it. What the host does between spans (Python,
    handing work and messages over) hides behind a device's queue, as in a paced run: it counts 0.
    """
    cpu = rows["cpu_ns"].fill_null(-1).to_numpy()
    timed = cpu >= 0
    if not timed.any():
        raise ReplayError(
            "the trace holds no CPU time (cpu_ns), so it cannot be replayed by it: use device_time='wall'"
        )
    level = _of_kind(rows["kind"], {str(kind): value for kind, value in _LEVEL.items()}, 4)
    innermost = _innermost(marks, np.where(timed, level, 4)[marks.row])
    num = rows.height
    starts = (marks.role == p.START) & timed[marks.row]
    parent = np.where(starts, innermost, -1)
    inside = np.bincount(parent[parent >= 0], cpu[marks.row[parent >= 0]], num)
    self_cpu = np.where(timed & (rows["kind"] != "step").to_numpy(), np.maximum(cpu - inside, 0), 0)
    known = innermost >= 0
    self_wall = np.bincount(innermost[known], own[known], num)
    rate = np.divide(self_cpu, self_wall, out=np.zeros(num), where=self_wall > 0)
    work = np.where(known, own * rate[innermost], 0.0)
    lump = (marks.role == p.END) & (self_wall == 0)[marks.row] & timed[marks.row]
    work[lump] += self_cpu[marks.row[lump]]  # a span of no length on the clock
    return work


def _innermost(marks: p.Marks, level: np.ndarray) -> np.ndarray:
    """The row of the deepest span that is open in the interval that ends at each mark; -1 where none is."""
    place = np.arange(len(marks.row))
    found = np.full(len(marks.row), -1)
    for depth in range(4):
        here = level == depth
        last = np.maximum.accumulate(np.where(here & (marks.role == p.START), place, -1))
        last = np.concatenate([[-1], last[:-1]])  # the state before the mark
        is_open = (_depth(marks, here, p.START, p.END) > 0) & (last >= 0)
        found = np.where(is_open, marks.row[np.maximum(last, 0)], found)
    return found
