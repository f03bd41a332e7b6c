"""The event graph on its resources: what each rank does in which order, and what it waits for, in; times out.

A rank is one compute lane: a list of nodes run strictly in order. Before a node the rank works `own_ns` by itself. A
node issues a sync or waits for one. A sync occupies its lane (one per link and direction: a group's collectives, or
the messages from one rank to another) for `transfer_ns`, one after the other, and is there `latency_ns` later.

    collective  starts when its last member has issued it and its lane is free; complete for all at once
    send        complete when its lane is free again; its data arrives `latency_ns` later
    recv        complete `latency_ns` (its own, on top) after the data has arrived and the receiver has asked for it

Two ranks, rank 0 works 5 and sends, rank 1 asks at 1 and waits; transfer 2, latency 3: sent at 7, received at 10.
Overlap slows nothing: a rank's own work takes equally long whatever its lanes do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

COLLECTIVE, SEND, RECV = 0, 1, 2
"""What a sync is."""

_OPEN = -1  # not issued, not there, not done


class ReplayError(ValueError):
    """A graph or trace that cannot be replayed, and what to change."""


@dataclass(frozen=True)
class Syncs:
    """All operations between ranks, by number."""

    kind: Sequence[int]
    num_members: Sequence[int]  # of a collective: how many must issue it
    partner: Sequence[int]  # of a send its recv, of a recv its send; -1 where there is none
    lane: Sequence[int]
    transfer_ns: Sequence[int]
    latency_ns: Sequence[int]

    @property
    def num_lanes(self) -> int:
        return max(self.lane, default=-1) + 1


@dataclass(frozen=True)
class Graph:
    """Every rank's nodes, rank after rank: those of rank r are first[r] to first[r + 1].

    code    s >= 0: issue sync s; otherwise wait for sync ~s
    own_ns  the rank's own work since its node before
    lag_ns  of a wait that blocked: how much later than the completion the rank goes on
    rendezvous: a send is complete only once its receiver has asked (gloo), not when its data is on the way
    """

    start_ns: Sequence[int]  # of each rank
    first: Sequence[int]
    code: Sequence[int]
    own_ns: Sequence[int]
    lag_ns: Sequence[int]
    syncs: Syncs
    rendezvous: bool = False

    @property
    def num_ranks(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class Times:
    """When each node was over, and when each sync was complete (-1: never)."""

    node_ns: list[int]
    done_ns: list[int]


def play(graph: Graph) -> Times:
    """Run every rank to its end. Raises ReplayError where ranks wait for each other for ever."""
    state = _State(graph)
    runnable = deque(range(graph.num_ranks))
    while runnable:
        state.run(runnable.popleft(), runnable)
    stuck = [rank for rank, at in enumerate(state.at) if at < graph.first[rank + 1]]
    if stuck:
        raise ReplayError(_deadlock(graph, state.at, stuck))
    return Times(state.node_ns, state.done_ns)


class _State:
    """Where each rank stands, and what is known of each sync."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.at = list(graph.first[:-1])
        self.now_ns = list(graph.start_ns)
        self.node_ns = [_OPEN] * len(graph.code)
        num = len(graph.syncs.kind)
        self.done_ns = [_OPEN] * num
        self.arrived_ns = [_OPEN] * num  # last issue so far; of a recv whose data is not there: when it was asked for
        self.missing = list(graph.syncs.num_members)
        self.free_ns = [0] * graph.syncs.num_lanes
        self.waiting: dict[int, list[int]] = {}
        self.there_ns: dict[int, int] = {}  # data of a send whose receiver has not asked yet

    def run(self, rank: int, runnable: deque[int]) -> None:
        """Run `rank` until it waits for a sync that is not complete; ranks that can go on join `runnable`."""
        graph, done, node_ns, missing, arrived = self.graph, self.done_ns, self.node_ns, self.missing, self.arrived_ns
        code, own, lag, kind = graph.code, graph.own_ns, graph.lag_ns, graph.syncs.kind
        now = self.now_ns[rank]
        at = stop = graph.first[rank + 1]
        for at in range(self.at[rank], stop):
            sync = code[at]
            if sync < 0:
                sync = ~sync
                ready = done[sync]
                if ready < 0:
                    self.waiting.setdefault(sync, []).append(rank)
                    break
                now += own[at]
                if ready > now:
                    now = ready + lag[at]
            else:
                now += own[at]
                if kind[sync]:
                    self._message(sync, now, runnable)
                else:
                    if now > arrived[sync]:
                        arrived[sync] = now
                    missing[sync] -= 1
                    if not missing[sync]:
                        self._collective(sync, runnable)
            node_ns[at] = now
        else:
            at = stop
        self.now_ns[rank], self.at[rank] = now, at

    def _collective(self, sync: int, runnable: deque[int]) -> None:
        self._complete(sync, self._occupy(sync, self.arrived_ns[sync]) + self.graph.syncs.latency_ns[sync], runnable)

    def _occupy(self, sync: int, from_ns: int) -> int:
        """Put the sync on its lane; gives the time at which the lane is free again."""
        syncs = self.graph.syncs
        lane = syncs.lane[sync]
        free_ns = self.free_ns[lane]
        if from_ns > free_ns:
            free_ns = from_ns
        free_ns += syncs.transfer_ns[sync]
        self.free_ns[lane] = free_ns
        return free_ns

    def _message(self, sync: int, now_ns: int, runnable: deque[int]) -> None:
        """One side of a message was issued."""
        syncs = self.graph.syncs
        partner = syncs.partner[sync]
        if syncs.kind[sync] == SEND:
            free_ns = self._occupy(sync, now_ns)
            there_ns = free_ns + syncs.latency_ns[sync]
            asked_ns = self.arrived_ns[partner] if partner >= 0 else now_ns
            if self.graph.rendezvous and asked_ns < 0:
                self.arrived_ns[sync] = free_ns
            else:
                self._complete(sync, max(free_ns, asked_ns) if self.graph.rendezvous else free_ns, runnable)
            if partner >= 0:
                if asked_ns < 0:
                    self.there_ns[partner] = there_ns
                else:
                    self._complete(partner, max(there_ns, asked_ns) + syncs.latency_ns[partner], runnable)
            return
        self.arrived_ns[sync] = now_ns
        there_ns = self.there_ns.pop(sync, now_ns if partner < 0 else _OPEN)
        if there_ns >= 0:
            self._complete(sync, max(there_ns, now_ns) + syncs.latency_ns[sync], runnable)
            if partner >= 0 and self.done_ns[partner] < 0:
                self._complete(partner, max(self.arrived_ns[partner], now_ns), runnable)

    def _complete(self, sync: int, done_ns: int, runnable: deque[int]) -> None:
        self.done_ns[sync] = done_ns
        if sync in self.waiting:
            runnable.extend(self.waiting.pop(sync))


def _deadlock(graph: Graph, at: list[int], stuck: list[int]) -> str:
    lines = []
    for rank in stuck[:8]:
        sync = ~graph.code[at[rank]]
        what = ("a collective", "a send", "a receive")[graph.syncs.kind[sync]]
        lines.append(f"rank {rank} at its node {at[rank] - graph.first[rank]} waits for {what} (sync {sync})")
    more = f", and {len(stuck) - 8} more" if len(stuck) > 8 else ""
    return (
        f"{len(stuck)} of {graph.num_ranks} ranks wait for ever: {'; '.join(lines)}{more}. Every collective must be "
        f"issued by all its members, every receive needs its send, and a rank must send before it waits"
    )
