"""Event rows tied to a graph: marks in, the rows at their new times out.

A mark is a place in a rank's own order of work: the start or end of a span, the issue of a sync, the start or end of
a wait. Between two marks the rank works `own_ns` by itself. Only issues and ends of waits can depend on other ranks:
they are the nodes of the graph. All other marks follow from the node before them.

    mark      start F  end F  issue send  end of wait  start B
    own_ns       0       20        0           0           0
    node                          send       recv
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit.replay.graph import COLLECTIVE, Graph, Syncs, Times, play
from labkit.trace import SCHEMA

START, END, WAIT_START, WAIT_END, ISSUE, IMPLIED_WAIT = range(6)
"""What a mark is; from WAIT_END on, a node.

An implied wait has no row: the rank was not blocked there, but may be under other conditions.
"""

Ints = np.ndarray


@dataclass(frozen=True)
class Marks:
    """One entry per mark, in each rank's order, rank after rank."""

    rank: Ints
    role: Ints
    row: Ints  # of the table of events
    sync: Ints  # of issues and ends of waits; -1 otherwise
    own_ns: Ints
    lag_ns: Ints


@dataclass(frozen=True)
class Program:
    """Everything that is needed to play a run: its marks, its syncs, and its rows, whose own times do not matter."""

    rows: pl.DataFrame
    marks: Marks
    syncs: Syncs
    start_ns: Ints  # of each rank
    rendezvous: bool = False
    behind_ns: Ints | None = None  # of each row: how much later than its group a member saw a collective complete


def graph_of(program: Program) -> Graph:
    """The nodes of a program."""
    nodes = _nodes(program.marks)
    return _graph(program, nodes, _own_since_node(program.marks, nodes))


def play_program(program: Program) -> pl.DataFrame:
    """The rows at the times that the graph gives them, with waits that vanished left out and new ones added."""
    nodes = _nodes(program.marks)
    own_ns = _own_since_node(program.marks, nodes)
    times = play(_graph(program, nodes, own_ns))
    at_ns, before_ns = _mark_times(program, times, nodes, own_ns)
    return _rows(program, times, at_ns, before_ns)


def _graph(program: Program, nodes: Ints, own_ns: Ints) -> Graph:
    marks = program.marks
    rank, sync = marks.rank[nodes], marks.sync[nodes]
    return Graph(
        start_ns=program.start_ns.tolist(),
        first=np.searchsorted(rank, np.arange(len(program.start_ns) + 1)).tolist(),
        code=np.where(marks.role[nodes] == ISSUE, sync, ~sync).tolist(),
        own_ns=own_ns[nodes].tolist(),
        lag_ns=marks.lag_ns[nodes].tolist(),
        syncs=program.syncs,
        rendezvous=program.rendezvous,
    )


def _nodes(marks: Marks) -> Ints:
    return np.flatnonzero(marks.role >= WAIT_END)


def _own_since_node(marks: Marks, nodes: Ints) -> Ints:
    """For each mark, the rank's own work since the node before it (for a node too), or since the rank's start."""
    total = np.cumsum(marks.own_ns)
    previous = _node_before(marks, nodes)
    first = np.searchsorted(marks.rank, marks.rank)  # where the mark's rank begins
    base = np.where(previous >= 0, total[previous], total[first] - marks.own_ns[first])
    return total - base


def _node_before(marks: Marks, nodes: Ints) -> Ints:
    """For each mark, the place of the last node before it on its rank; -1 where there is none."""
    is_node = np.zeros(len(marks.rank), bool)
    is_node[nodes] = True
    upto = np.maximum.accumulate(np.where(is_node, np.arange(len(is_node)), -1))
    previous = np.concatenate([[-1], upto[:-1]])
    return np.where((previous >= 0) & (marks.rank[previous] == marks.rank), previous, -1)


def _mark_times(program: Program, times: Times, nodes: Ints, own_ns: Ints) -> tuple[Ints, Ints]:
    """When each mark is reached, and when it would be if it were never blocked."""
    marks = program.marks
    over_ns = np.zeros(len(marks.rank), np.int64)
    over_ns[nodes] = times.node_ns
    previous = _node_before(marks, nodes)
    since_ns = np.where(previous >= 0, over_ns[previous], program.start_ns[marks.rank])
    before_ns = since_ns + own_ns
    at_ns = before_ns.copy()
    at_ns[nodes] = times.node_ns
    return at_ns, before_ns


def _rows(program: Program, times: Times, at_ns: Ints, before_ns: Ints) -> pl.DataFrame:
    marks, rows = program.marks, program.rows
    start_ns, end_ns = np.zeros(rows.height, np.int64), np.full(rows.height, -1)
    starts = (marks.role == START) | (marks.role == WAIT_START) | (marks.role == ISSUE)
    ends = (marks.role == END) | (marks.role == WAIT_END)
    start_ns[marks.row[starts]] = at_ns[starts]
    end_ns[marks.row[ends]] = at_ns[ends]
    issues = marks.role == ISSUE
    end_ns[marks.row[issues]] = np.array(times.done_ns, np.int64)[marks.sync[issues]]
    if program.behind_ns is not None:
        is_collective = np.array(program.syncs.kind)[marks.sync[issues]] == COLLECTIVE
        end_ns[marks.row[issues]] += np.where(is_collective, program.behind_ns[marks.row[issues]], 0)
    timed = rows.with_columns(pl.Series("start_ns", start_ns), pl.Series("end_ns", np.maximum(end_ns, start_ns)))
    timed = timed.filter((pl.col("kind") != "wait") | (pl.col("end_ns") > pl.col("start_ns")))
    return pl.concat([timed, _new_waits(program, at_ns, before_ns)]).sort("start_ns", "rank", maintain_order=True)


def _new_waits(program: Program, at_ns: Ints, before_ns: Ints) -> pl.DataFrame:
    """A row for each implied wait that blocks now: as its sync's row, without what only a sync has."""
    marks = program.marks
    blocked = (marks.role == IMPLIED_WAIT) & (at_ns > before_ns)
    of_sync = program.rows[marks.row[blocked]]
    absent = [pl.lit(None, dtype=SCHEMA[name]).alias(name) for name in ("cpu_ns", "late_ns", "size_bytes")]
    return of_sync.with_columns(
        pl.lit("wait", dtype=SCHEMA["kind"]).alias("kind"),
        pl.Series("start_ns", before_ns[blocked]),
        pl.Series("end_ns", at_ns[blocked]),
        *absent,
    ).select(program.rows.columns)
