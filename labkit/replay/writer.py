"""A program written by hand: what each rank does, call by call, in; a `Program` out. For plans that were never run.

writer.begin_rank(0)
row = writer.open("stage_forward", stage=0, microbatch=0)
writer.work(20_000_000)
writer.close(row)
sent = writer.send(1, key=("F", 1, 0), size_bytes=2048, stage=0, microbatch=0)
writer.wait(sent)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np
import polars as pl

from labkit.replay import program as p
from labkit.replay.graph import COLLECTIVE, RECV, SEND, ReplayError, Syncs
from labkit.trace import SCHEMA

Cost = Callable[[str, str, int, int], tuple[int, int]]
"""(axis, op, bytes, ranks) -> (transfer, latency) in ns."""

_COLUMNS = ("rank", "kind", "step", "microbatch", "stage", "layer", "op", "axis", "peer", "size_bytes", "seq")


class Issued(NamedTuple):
    """An operation of one rank: its sync and its row."""

    sync: int
    row: int


class Writer:
    """Collects rows, marks and syncs. Ranks are written one after the other, each from first to last."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._values: list[tuple] = []  # of each row, by _COLUMNS
        self._groups: dict[tuple[int, ...], int] = {}
        self._group_of_row: list[int | None] = []
        self._marks: list[tuple[int, int, int, int, int]] = []  # rank, role, row, sync, own
        self._start_ns: list[int] = []
        self._syncs: list[list[int]] = []  # kind, members, partner, lane, transfer, latency
        self._numbers: dict[Hashable, int] = {}
        self._lanes: dict[Hashable, int] = {}
        self._seq: defaultdict[Hashable, int] = defaultdict(int)
        self._message_seq: dict[Hashable, int] = {}
        self._own_ns = 0
        self.rank, self.step = -1, 0

    # -- a rank's own work

    def begin_rank(self, rank: int, start_ns: int = 0) -> None:
        if rank != self.rank + 1:
            raise ReplayError(f"rank {rank} after rank {self.rank}: write the ranks in order")
        self.rank, self._own_ns = rank, 0
        self._start_ns.append(start_ns)

    def work(self, own_ns: int) -> None:
        """The rank works by itself for so long."""
        if not 0 <= own_ns < 2**60:
            raise ReplayError(f"{own_ns!r} ns is no duration: give a whole number of ns, 0 or more")
        self._own_ns += own_ns

    def open(
        self, kind: str, *, stage: int | None = None, microbatch: int | None = None, layer: str | None = None
    ) -> int:
        """A span starts here; gives its row."""
        row = self._row(kind, stage, microbatch, layer)
        self._mark(p.START, row)
        return row

    def close(self, row: int) -> None:
        self._mark(p.END, row)

    def span(self, kind: str, own_ns: int, *, stage: int | None = None, microbatch: int | None = None) -> None:
        """A span of own work."""
        row = self.open(kind, stage=stage, microbatch=microbatch)
        self.work(own_ns)
        self.close(row)

    # -- between ranks

    def collective(
        self, op: str, axis: str, group: tuple[int, ...], size_bytes: int, *, stage: int | None = None,
        microbatch: int | None = None, layer: str | None = None,
    ) -> Issued:  # fmt: skip
        """Issue the next collective of `group`."""
        seq = self._next(("collective", group, self.rank))
        sync = self._number(("collective", group, seq), COLLECTIVE, op, axis, size_bytes, len(group), lane=group)
        self._syncs[sync][1] = len(group)
        row = self._row("sync", stage, microbatch, layer, op, axis, None, size_bytes, seq, group)
        self._mark(p.ISSUE, row, sync)
        return Issued(sync, row)

    def send(
        self,
        to: int,
        key: Hashable,
        size_bytes: int,
        group: tuple[int, ...],
        *,
        axis: str = "pp",
        stage: int,
        microbatch: int,
    ) -> Issued:
        """Issue a message; `key` says which it is among those of one pair and step."""
        return self._message(SEND, "send", to, (self.rank, to), key, size_bytes, group, axis, stage, microbatch)

    def recv(
        self,
        source: int,
        key: Hashable,
        size_bytes: int,
        group: tuple[int, ...],
        *,
        axis: str = "pp",
        stage: int,
        microbatch: int,
    ) -> Issued:
        """Ask for a message."""
        return self._message(RECV, "recv", source, (source, self.rank), key, size_bytes, group, axis, stage, microbatch)

    def _message(
        self, kind: int, op: str, peer: int, pair: tuple[int, int], key: Hashable, size_bytes: int,
        group: tuple[int, ...], axis: str, stage: int, microbatch: int,
    ) -> Issued:  # fmt: skip
        whole = (pair, self.step, key)
        seq = self._message_seq.get(whole)  # both ends carry one number, also where they are issued in another order
        if seq is None:
            seq = self._message_seq[whole] = self._next(pair)
        sync = self._number((op, *whole), kind, op, axis, size_bytes, 2, lane=pair)
        other = self._numbers.get(("recv" if kind == SEND else "send", *whole))
        if other is not None:
            self._syncs[sync][2], self._syncs[other][2] = other, sync
        row = self._row("sync", stage, microbatch, None, op, axis, peer, size_bytes, seq, group)
        self._mark(p.ISSUE, row, sync)
        return Issued(sync, row)

    def wait(self, issued: Issued) -> None:
        """Go on only when the operation is complete."""
        self._mark(p.IMPLIED_WAIT, issued.row, issued.sync)

    # -- the whole

    def program(self) -> p.Program:
        """Everything written so far."""
        marks = np.array(self._marks, np.int64).reshape(-1, 5).T
        rank, role, row, sync, own = marks
        syncs = Syncs(*map(list, zip(*self._syncs))) if self._syncs else Syncs([], [], [], [], [], [])
        rows = p.Marks(rank, role, row, sync, own, np.zeros(len(rank), np.int64))
        return p.Program(self._rows(), rows, syncs, np.array(self._start_ns, np.int64))

    def _rows(self) -> pl.DataFrame:
        groups = pl.Series([list(group) for group in self._groups] or [[]], dtype=SCHEMA["group"])
        codes = pl.Series(self._group_of_row, dtype=pl.UInt32)
        columns = zip(*self._values) if self._values else [()] * len(_COLUMNS)
        frame = pl.DataFrame({name: pl.Series(values, dtype=SCHEMA[name]) for name, values in zip(_COLUMNS, columns)})
        frame = frame.with_columns(groups.gather(codes).alias("group"))
        missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in SCHEMA.items() if name not in frame.columns]
        return frame.with_columns(missing).select(list(SCHEMA))

    def _row(
        self, kind: str, stage: int | None, microbatch: int | None, layer: str | None, op: str | None = None,
        axis: str | None = None, peer: int | None = None, size_bytes: int | None = None, seq: int | None = None,
        group: tuple[int, ...] | None = None,
    ) -> int:  # fmt: skip
        self._values.append((self.rank, kind, self.step, microbatch, stage, layer, op, axis, peer, size_bytes, seq))
        self._group_of_row.append(None if group is None else self._groups.setdefault(group, len(self._groups)))
        return len(self._group_of_row) - 1

    def _mark(self, role: int, row: int, sync: int = -1) -> None:
        self._marks.append((self.rank, role, row, sync, self._own_ns))
        self._own_ns = 0

    def _next(self, key: Hashable) -> int:
        self._seq[key] += 1
        return self._seq[key] - 1

    def _number(
        self, key: Hashable, kind: int, op: str, axis: str, size_bytes: int, num_ranks: int, *, lane: Hashable
    ) -> int:
        """The sync's number; a new one with its cost at first."""
        known = self._numbers.get(key)
        if known is not None:
            return known
        transfer_ns, latency_ns = (0, 0) if kind == RECV else self._cost(axis, op, size_bytes, num_ranks)
        self._syncs.append(
            [kind, int(kind != RECV), -1, self._lanes.setdefault(lane, len(self._lanes)), transfer_ns, latency_ns]
        )
        self._numbers[key] = len(self._syncs) - 1
        return len(self._syncs) - 1
