"""Which rows of a trace are one operation: event rows in, operations by number out.

Collectives match by group, step, operation and number; messages by axis, sender, receiver and number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit.event import KINDS, Kind
from labkit.replay.columns import Ints, find, first_of_equal, mixed, occurrence, text_code
from labkit.replay.graph import COLLECTIVE, RECV, SEND

_SAME = ("rank", "step", "who", "op", "peer", "seq", "stage", "microbatch", "layer")
"""Columns in which a wait equals the sync it waits for."""

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Operations:
    """Everything ranks did together, by number: collectives first, then each side of each message.

    arrival_ns  last issue       end_ns  first completion that a member saw
    wait_ns     when a member first waited for it; -1: nobody was seen to
    row         of one of its syncs, in the table of events
    """

    kind: Ints
    num_members: Ints
    num_ranks: Ints  # of its group
    partner: Ints  # of each message side, the number of the other; -1 where there is none
    lane: Ints
    arrival_ns: Ints
    end_ns: Ints
    wait_ns: Ints
    size_bytes: Ints
    axis: Ints
    op: Ints
    row: Ints

    @property
    def num_lonely(self) -> int:
        """Operations without their counterpart."""
        alone = np.where(self.kind == COLLECTIVE, self.num_members != self.num_ranks, self.partner < 0)
        return int(alone.sum())


@dataclass(frozen=True)
class Matching:
    """Operations, and whose rows are whose.

    issue_row, issue_sync  every sync row, and the number of its operation
    wait_row, wait_issue   every wait row that waits for a known sync, and the place of that one in issue_row
    """

    operations: Operations
    issue_row: Ints
    issue_sync: Ints
    wait_row: Ints
    wait_issue: Ints

    @property
    def wait_sync(self) -> Ints:
        return self.issue_sync[self.wait_issue]


def match(rows: pl.DataFrame, columns: Mapping[str, Ints]) -> Matching:
    """The operations among `rows`, of which `columns` are the numbers (see captured)."""
    issue_row, wait_row = (np.flatnonzero(columns["kind"] == KINDS.index(each)) for each in (Kind.SYNC, Kind.WAIT))
    syncs, waits = (_keyed(rows, columns, places) for places in (issue_row, wait_row))
    among = find(*(mixed(*(part[name] for name in _SAME)) for part in (waits, syncs)))
    known = among >= 0
    number, order = _numbered(syncs)
    wait_ns = np.full(number.max(initial=-1) + 1, _NEVER)
    np.minimum.at(wait_ns, number[among[known]], waits["start_ns"][known])
    syncs["wait_ns"] = np.where(wait_ns == _NEVER, -1, wait_ns)[number]
    return Matching(
        _operations(rows, syncs, issue_row, number, order), issue_row, number, wait_row[known], among[known]
    )


def _keyed(rows: pl.DataFrame, columns: Mapping[str, Ints], places: Ints) -> dict[str, Ints]:
    """The rows at these places, with the kind of operation and `who` does it: of a message its axis, else its group."""
    found = {name: column[places] for name, column in columns.items()}
    found["kind"] = np.select([found["op"] == text_code(op) for op in ("send", "recv")], [SEND, RECV], COLLECTIVE)
    together = found["kind"] == COLLECTIVE
    found["who"] = found["axis"].copy()
    if together.any():  # a group can be long, and hashing all of them takes long
        groups = rows["group"].gather(places[together])
        found["who"][together] = groups.hash().reinterpret(signed=True).to_numpy()
    return found


def _numbered(syncs: dict[str, Ints]) -> tuple[Ints, Ints]:
    """The number of each sync's operation, and the syncs in the order of their numbers. Adds keys to `syncs`."""
    kind, rank, peer = syncs["kind"], syncs["rank"], syncs["peer"]
    together = kind == COLLECTIVE
    source = np.where(kind == SEND, rank, np.where(kind == RECV, peer, -1))
    target = np.where(kind == SEND, peer, np.where(kind == RECV, rank, -1))
    syncs["pair"] = mixed(syncs["who"], source, target)
    operation = mixed(syncs["pair"], syncs["step"], syncs["seq"], np.where(together, syncs["op"], -1))
    # Two groups of the same ranks count their operations alike.
    syncs["operation"] = mixed(operation, occurrence(mixed(operation, rank, kind)))
    number = np.empty(len(kind), np.int64)
    _, first, code = np.unique(syncs["operation"][together], return_index=True, return_inverse=True)
    number[together] = np.argsort(np.argsort(first))[code]  # in the order of issue, in which they share their lane
    number[~together] = number[together].max(initial=-1) + 1 + np.arange(len(kind) - together.sum())
    return number, np.argsort(number, kind="stable") if together.any() else np.arange(len(number))


def _operations(rows: pl.DataFrame, syncs: dict[str, Ints], row: Ints, number: Ints, order: Ints) -> Operations:
    begins = np.flatnonzero(first_of_equal(number[order]))
    first = order[begins]

    def over(name: str, best: np.ufunc) -> Ints:
        return best.reduceat(syncs[name][order], begins) if len(begins) < len(order) else syncs[name][first]

    kind = syncs["kind"][first]
    return Operations(
        kind=kind,
        num_members=np.diff(begins, append=len(order)),
        num_ranks=rows["group"].list.len().cast(pl.Int64).fill_null(0).gather(row[first]).to_numpy(),
        partner=_partners(kind, syncs["operation"][first]),
        lane=np.unique(syncs["pair"][first], return_inverse=True)[1],
        arrival_ns=over("start_ns", np.maximum),
        end_ns=over("end_ns", np.minimum),
        wait_ns=syncs["wait_ns"][first],
        size_bytes=np.maximum(over("size_bytes", np.maximum), 0),
        axis=syncs["axis"][first],
        op=syncs["op"][first],
        row=row[first],
    )


def _partners(kind: Ints, operation: Ints) -> Ints:
    partner = np.full(len(kind), -1)
    sends, receives = np.flatnonzero(kind == SEND), np.flatnonzero(kind == RECV)
    among = find(operation[sends], operation[receives])
    sends, receives = sends[among >= 0], receives[among[among >= 0]]
    partner[sends], partner[receives] = receives, sends
    return partner
