"""A captured trace as a program: event rows in, marks, syncs and own work out.

The order of work of a rank is the order of its times. At equal times (an emulated device has many) it follows from
what can be: a wait ends, spans end (inner ones first), syncs are issued, the rank may wait, spans start (outer first).
Waits are not work: they vanish, and come back from the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit.event import KINDS, LAYER_KINDS, STAGE_KINDS, Kind
from labkit.replay import program as p
from labkit.replay.changes import Changes
from labkit.replay.columns import Ints, ints, order_by, text_code
from labkit.replay.graph import COLLECTIVE, ReplayError
from labkit.replay.implied import Columns, implied_waits
from labkit.replay.matching import Matching, match
from labkit.replay.syncs import Priced, Wiring, price
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


@dataclass(frozen=True)
class Captured:
    """A trace ready to be played: its program, its rows from before the first step, and what had to be repaired."""

    program: p.Program
    setup: pl.DataFrame
    repairs: tuple[str, ...]


def captured(trace: Trace, changes: Changes) -> Captured:
    """The program of a trace under `changes`. Raises ReplayError for a trace that cannot be replayed."""
    if trace.meta.source == "imported":
        raise ReplayError(
            "an imported trace cannot be replayed: profiler files do not say which kernel waits for which sync, so "
            "what would move with a link or a rank is not known; use analyze and explain, or capture a run with labkit"
        )
    plan = trace.meta.plan or {}
    rows, setup, repairs = _whole_steps(trace)
    columns = _columns(rows)
    matching = match(rows, columns)
    priced = price(rows, matching, Wiring.of(plan, trace.meta.source), changes)
    if priced.operations.num_lonely:
        lonely = priced.operations.num_lonely
        repairs += (f"{lonely} syncs lack a counterpart: they complete with those members that are there",)
    marks, times = _marks(columns, matching, priced, implied_waits(columns, matching, priced, plan))
    marks = _with_own_work(rows, columns, marks, times, matching.wait_row[priced.blocked], changes)
    first = np.searchsorted(marks.rank, np.arange(trace.meta.num_ranks))
    behind = _behind(columns, matching, priced)
    program = p.Program(rows, marks, priced.syncs(), times[first], priced.costs.rendezvous, behind)
    return Captured(program, setup, repairs)


def _columns(rows: pl.DataFrame) -> Columns:
    """The columns that a replay computes with, as numbers."""
    names = ("rank", "step", "microbatch", "stage", "layer", "op", "axis", "peer", "seq", "size_bytes")
    columns = ints(rows, *names, "start_ns", "end_ns") | {"kind": rows["kind"].to_physical().to_numpy()}
    if min(columns["start_ns"].min(), columns["end_ns"].min()) < 0:
        raise ReplayError("the trace has times below 0: give times since its start")
    return columns


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
    return events, trace.events.filter(pl.col("step").is_null()), repairs


# ---- marks


def _marks(columns: Columns, matching: Matching, priced: Priced, implied: tuple[Ints, Ints]) -> tuple[p.Marks, Ints]:
    """All marks in order, without their own work, and the time of each."""
    kind, start_ns, end_ns = columns["kind"], columns["start_ns"], columns["end_ns"]
    spans = np.flatnonzero((kind != KINDS.index(Kind.SYNC)) & (kind != KINDS.index(Kind.WAIT)))
    issues = order_by(columns["seq"][matching.issue_row] + 1)  # of those at one time, the first in its group first
    waits, row = matching.wait_row, matching.issue_row[issues]
    places, implied_ns = implied
    parts = [
        (p.START, spans, -1, start_ns[spans], _start_order(columns, spans)),
        (p.END, spans, -1, end_ns[spans], _end_order(columns, spans)),
        (p.WAIT_START, waits, -1, start_ns[waits], _ORDER["may_wait"]),
        (p.WAIT_END, waits, matching.wait_sync, end_ns[waits], _ORDER["wait"]),
        (p.ISSUE, row, matching.issue_sync[issues], start_ns[row], _issue_order(columns, row)),
        (p.IMPLIED_WAIT, matching.issue_row[places], matching.issue_sync[places], implied_ns, _ORDER["may_wait"]),
    ]
    sizes = [len(part[1]) for part in parts]
    role = np.repeat([part[0] for part in parts], sizes)
    row, sync, t_ns, digit = (
        np.concatenate([np.broadcast_to(part[i], size) for part, size in zip(parts, sizes)]) for i in range(1, 5)
    )
    lag_ns = np.zeros(len(role), np.int64)
    kept = priced.costs.as_was[matching.wait_sync] & priced.blocked
    lag_ns[role == p.WAIT_END] = np.where(kept, priced.lag_ns, 0)
    order = order_by(columns["rank"][row], t_ns, digit)
    row = row[order]
    marks = p.Marks(columns["rank"][row], role[order], row, sync[order], np.zeros(len(row), np.int64), lag_ns[order])
    return marks, t_ns[order]


def _start_order(columns: Columns, spans: Ints) -> Ints:
    instant = columns["end_ns"][spans] <= columns["start_ns"][spans]
    return np.where(instant, _ORDER["instant"], _ORDER["start"]) + _level(columns, spans)


def _end_order(columns: Columns, spans: Ints) -> Ints:
    instant = columns["end_ns"][spans] <= columns["start_ns"][spans]
    return np.where(instant, _ORDER["instant_end"], _ORDER["end"]) + 3 - _level(columns, spans)


def _issue_order(columns: Columns, issues: Ints) -> Ints:
    return np.where(columns["op"][issues] == text_code("send"), _ORDER["send"], _ORDER["issue"])


def _level(columns: Columns, rows: Ints) -> Ints:
    return _by_kind(_LEVEL, 3)[columns["kind"][rows]]


def _by_kind(values: Mapping[str, int], default: int) -> Ints:
    """A number for each kind, by its place in KINDS."""
    return np.array([values.get(kind, default) for kind in KINDS], np.int64)


def _behind(columns: Columns, matching: Matching, priced: Priced) -> Ints:
    """How much later than the first member each member saw a collective complete, where its cost is as it was."""
    behind_ns = np.zeros(len(columns["kind"]), np.int64)
    kept = (priced.operations.kind == COLLECTIVE) & priced.costs.as_was
    row, sync = (column[kept[matching.issue_sync]] for column in (matching.issue_row, matching.issue_sync))
    behind_ns[row] = columns["end_ns"][row] - priced.operations.end_ns[sync]
    return behind_ns


# ---- own work


def _with_own_work(
    rows: pl.DataFrame, columns: Columns, marks: p.Marks, t_ns: Ints, blocked: Ints, changes: Changes
) -> p.Marks:
    """The marks with what the rank worked by itself before each, as `changes` has it. `blocked`: rows of waits."""
    own = np.diff(t_ns, prepend=0)
    own[np.flatnonzero(np.diff(marks.rank, prepend=-1))] = 0
    is_blocked = np.zeros(rows.height, bool)
    is_blocked[blocked] = True
    waiting = _depth(marks, is_blocked[marks.row], p.WAIT_START, p.WAIT_END)
    own = np.where(waiting > 0, 0, own)
    kind = columns["kind"][marks.row]
    computes = _by_kind(dict.fromkeys(_COMPUTE, 1), 0)[kind] == 1
    computing = _depth(marks, computes, p.START, p.END)
    in_step = _depth(marks, kind == KINDS.index(Kind.STEP), p.START, p.END)
    if changes.device_time == "cpu":
        own = _cpu_work(rows, columns, marks, own)
    factor = np.where(computing > 0, changes.compute, 1.0)
    for rank, slower in changes.slow_ranks.items():
        factor = np.where((marks.rank == rank) & (in_step > 0), factor * slower, factor)
    own = np.rint(own * factor).astype(np.int64)
    return p.Marks(marks.rank, marks.role, marks.row, marks.sync, own, marks.lag_ns)


def _depth(marks: p.Marks, which: Ints, start: int, end: int) -> Ints:
    """How many of the chosen spans are open in the interval that ends at each mark."""
    change = np.where(which & (marks.role == start), 1, 0) - np.where(which & (marks.role == end), 1, 0)
    return np.cumsum(change) - change


def _cpu_work(rows: pl.DataFrame, columns: Columns, marks: p.Marks, own: Ints) -> Ints:
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
    level = _by_kind(_LEVEL, 4)[columns["kind"]]
    innermost = _innermost(marks, np.where(timed, level, 4)[marks.row])
    num = rows.height
    starts = (marks.role == p.START) & timed[marks.row]
    parent = np.where(starts, innermost, -1)
    inside = np.bincount(parent[parent >= 0], cpu[marks.row[parent >= 0]], num)
    self_cpu = np.where(timed & (columns["kind"] != KINDS.index(Kind.STEP)), np.maximum(cpu - inside, 0), 0)
    known = innermost >= 0
    self_wall = np.bincount(innermost[known], own[known], num)
    rate = np.divide(self_cpu, self_wall, out=np.zeros(num), where=self_wall > 0)
    work = np.where(known, own * rate[innermost], 0.0)
    lump = (marks.role == p.END) & (self_wall == 0)[marks.row] & timed[marks.row]
    work[lump] += self_cpu[marks.row[lump]]  # a span of no length on the clock
    return work


def _innermost(marks: p.Marks, level: Ints) -> Ints:
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
