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
from typing import NamedTuple

import numpy as np
import polars as pl

from labkit.event import KINDS, Kind
from labkit.replay.columns import order_by
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


class _Nodes(NamedTuple):
    """The marks that other ranks depend on, or that depend on them; not asking for what comes anyway."""

    place: Ints  # of each node, among the marks
    before: Ints  # of each mark: how many nodes precede it; the last one is its rank's if `follows`
    follows: Ints  # whether a node precedes it on its rank
    own_ns: Ints  # of each mark: the rank's own work since that node, or since its start


def graph_of(program: Program) -> Graph:
    """The nodes of a program."""
    return _graph(program, _nodes(program))


def play_program(program: Program) -> pl.DataFrame:
    """The rows at the times that the graph gives them, by start; waits that vanished left out, new ones added."""
    nodes = _nodes(program)
    times = play(_graph(program, nodes))
    at_ns, before_ns = _mark_times(program, np.array(times.node_ns, np.int64), nodes)
    return _rows(program, times, at_ns, before_ns)


def _graph(program: Program, nodes: _Nodes) -> Graph:
    marks, place = program.marks, nodes.place
    sync = marks.sync[place]
    return Graph(
        start_ns=program.start_ns.tolist(),
        first=np.searchsorted(marks.rank[place], np.arange(len(program.start_ns) + 1)).tolist(),
        code=np.where(marks.role[place] == ISSUE, sync, ~sync).tolist(),
        own_ns=nodes.own_ns[place].tolist(),
        lag_ns=marks.lag_ns[place].tolist(),
        syncs=program.syncs,
        rendezvous=program.rendezvous,
    )


def _nodes(program: Program) -> _Nodes:
    marks = program.marks
    counts = np.append(np.array(program.syncs.num_members) > 0, False)  # the last: of sync -1
    is_node = (marks.role >= WAIT_END) & ((marks.role != ISSUE) | counts[marks.sync])
    place, before = np.flatnonzero(is_node), np.cumsum(is_node) - is_node
    first = np.searchsorted(marks.rank, np.arange(len(program.start_ns)))
    follows = before > before[first][marks.rank]
    total_ns = np.cumsum(marks.own_ns)
    at_start_ns = (total_ns - marks.own_ns)[first][marks.rank]
    return _Nodes(place, before, follows, total_ns - np.where(follows, _of_last(total_ns[place], before), at_start_ns))


def _of_last(values: Ints, before: Ints) -> Ints:
    """For each mark the value of the last node before it; any number where there is none."""
    return np.append(values, 0)[before - 1]


def _mark_times(program: Program, node_ns: Ints, nodes: _Nodes) -> tuple[Ints, Ints]:
    """When each mark is reached, and when it would be if it were never blocked."""
    start_ns = program.start_ns[program.marks.rank]
    before_ns = np.where(nodes.follows, _of_last(node_ns, nodes.before), start_ns) + nodes.own_ns
    at_ns = before_ns.copy()
    at_ns[nodes.place] = node_ns
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
    end_ns = np.maximum(end_ns, start_ns)
    kept = np.flatnonzero((rows["kind"].to_physical().to_numpy() != KINDS.index(Kind.WAIT)) | (end_ns > start_ns))
    new = (marks.role == IMPLIED_WAIT) & (at_ns > before_ns)  # an implied wait that blocks now
    place = np.concatenate([kept, marks.row[new]])
    start_ns, end_ns = (np.concatenate(pair) for pair in ((start_ns[kept], before_ns[new]), (end_ns[kept], at_ns[new])))
    is_new = np.arange(len(place)) >= len(kept)
    order = order_by(start_ns, rows["rank"].to_numpy()[place].astype(np.int64))
    return _table(rows, place[order], start_ns[order], end_ns[order], is_new[order])


def _table(rows: pl.DataFrame, place: Ints, start_ns: Ints, end_ns: Ints, is_new: Ints) -> pl.DataFrame:
    """The rows at these places at new times. A new wait is as its sync's row, without what only a sync has."""
    wait = pl.Series(is_new)
    absent = [pl.when(~wait).then(pl.col(name)).alias(name) for name in ("cpu_ns", "late_ns", "size_bytes")]
    kind = pl.when(wait).then(pl.lit(str(Kind.WAIT), dtype=SCHEMA["kind"])).otherwise("kind").alias("kind")
    filled = [name for name in rows.columns if rows[name].null_count() < rows.height]
    empty = [pl.lit(None, dtype=SCHEMA[name]).alias(name) for name in rows.columns if name not in filled]
    found = rows.select(filled)[place].with_columns(empty).select(rows.columns)  # moving nulls about takes as long
    return found.with_columns(kind, pl.Series("start_ns", start_ns), pl.Series("end_ns", end_ns), *absent)
