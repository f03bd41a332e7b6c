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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

COLLECTIVE, SEND, RECV = 0, 1, 2
"""What a sync is."""

_OPEN = -1  # not issued, not there, not done


class ReplayError(ValueError):
    """A graph or trace that cannot be replayed, and what to change."""


@dataclass(frozen=True)
class Syncs:
    """All operations between ranks, by number."""

    kind: Sequence[int]
    num_members: Sequence[int]  # of a collective: how many must issue it; of a recv 0: it counts as asked for at once
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
    state = _State.of(graph)
    ranks = [_run(graph, state, rank) for rank in range(graph.num_ranks)]
    runnable, waiting = state.runnable, state.waiting
    runnable.extend(range(graph.num_ranks))
    while runnable:
        rank = runnable.popleft()
        needed = next(ranks[rank], None)
        if needed is not None:
            waiting.setdefault(needed, []).append(rank)
    if waiting:
        raise ReplayError(_deadlock(graph, state))
    return Times(state.node_ns, state.done_ns)


@dataclass(frozen=True)
class _State:
    """What is known so far: of each node and sync when it was over, and who waits for what."""

    node_ns: list[int]
    done_ns: list[int]
    arrived_ns: list[int]  # last issue so far; of a recv, when it was asked for
    there_ns: list[int]  # of a recv: when its data was there
    missing: list[int]  # of a collective: members that have not issued it
    free_ns: list[int]  # of each lane
    waiting: dict[int, list[int]]  # sync -> ranks
    runnable: deque[int]

    @classmethod
    def of(cls, graph: Graph) -> _State:
        syncs, num = graph.syncs, len(graph.syncs.kind)
        unasked = (np.asarray(syncs.kind) == RECV) & (np.asarray(syncs.num_members) == 0)
        over = unasked & (np.asarray(syncs.partner) < 0)
        arrived, done = (np.where(known, 0, _OPEN).tolist() for known in (unasked, over))
        missing, free = list(syncs.num_members), [0] * syncs.num_lanes
        return cls([_OPEN] * len(graph.code), done, arrived, [_OPEN] * num, missing, free, {}, deque())

    def complete(self, sync: int, done_ns: int) -> None:
        self.done_ns[sync] = done_ns
        if sync in self.waiting:
            self.runnable.extend(self.waiting.pop(sync))


def _run(graph: Graph, state: _State, rank: int) -> Iterator[int]:
    """One rank's life; yields the sync it waits for. What most nodes do, wait or send, is done in place, for speed."""
    code, own, lag, syncs = graph.code, graph.own_ns, graph.lag_ns, graph.syncs
    kind, lane, partner, transfer, latency = (
        syncs.kind, syncs.lane, syncs.partner, syncs.transfer_ns, syncs.latency_ns
    )  # fmt: skip
    node_ns, done, arrived, there, free = (
        state.node_ns, state.done_ns, state.arrived_ns, state.there_ns, state.free_ns
    )  # fmt: skip
    eager, waiting, runnable, now = not graph.rendezvous, state.waiting, state.runnable, graph.start_ns[rank]
    for at in range(graph.first[rank], graph.first[rank + 1]):
        sync = code[at]
        if sync < 0:
            sync = ~sync
            if done[sync] < 0:
                yield sync
            now += own[at]
            if done[sync] > now:
                now = done[sync] + lag[at]
        else:
            now += own[at]
            if kind[sync] == SEND and eager and partner[sync] >= 0:
                out, other = free[lane[sync]], partner[sync]
                out = (now if now > out else out) + transfer[sync]
                free[lane[sync]] = done[sync] = out
                there[other] = out = out + latency[sync]
                if arrived[other] >= 0:
                    done[other] = (out if out > arrived[other] else arrived[other]) + latency[other]
                    if other in waiting:
                        runnable.extend(waiting.pop(other))
            else:
                _ISSUE[kind[sync]](graph, state, sync, now)
        node_ns[at] = now


def _collective(graph: Graph, state: _State, sync: int, now_ns: int) -> None:
    state.arrived_ns[sync] = max(state.arrived_ns[sync], now_ns)
    state.missing[sync] -= 1
    if not state.missing[sync]:
        free_ns = _occupy(graph.syncs, state, sync, state.arrived_ns[sync])
        state.complete(sync, free_ns + graph.syncs.latency_ns[sync])


def _send(graph: Graph, state: _State, sync: int, now_ns: int) -> None:
    """A send whose receiver must have asked before it is over, or that nobody receives."""
    syncs, partner = graph.syncs, graph.syncs.partner[sync]
    free_ns = _occupy(syncs, state, sync, now_ns)
    if partner < 0:
        state.complete(sync, free_ns)
        return
    there_ns, asked_ns = free_ns + syncs.latency_ns[sync], state.arrived_ns[partner]
    state.arrived_ns[sync], state.there_ns[partner] = free_ns, there_ns
    if asked_ns >= 0:
        state.complete(sync, max(free_ns, asked_ns))
        state.complete(partner, max(there_ns, asked_ns) + syncs.latency_ns[partner])


def _recv(graph: Graph, state: _State, sync: int, now_ns: int) -> None:
    """The receiver asks for its data."""
    partner = graph.syncs.partner[sync]
    there_ns = state.there_ns[sync] if partner >= 0 else now_ns
    state.arrived_ns[sync] = now_ns
    if there_ns >= 0:
        state.complete(sync, max(there_ns, now_ns) + graph.syncs.latency_ns[sync])
        if partner >= 0 and state.done_ns[partner] < 0:
            state.complete(partner, max(state.arrived_ns[partner], now_ns))


_ISSUE = {COLLECTIVE: _collective, SEND: _send, RECV: _recv}


def _occupy(syncs: Syncs, state: _State, sync: int, from_ns: int) -> int:
    """Put the sync on its lane; gives the time at which the lane is free again."""
    lane = syncs.lane[sync]
    state.free_ns[lane] = max(from_ns, state.free_ns[lane]) + syncs.transfer_ns[sync]
    return state.free_ns[lane]


def _deadlock(graph: Graph, state: _State) -> str:
    needed = sorted((rank, sync) for sync, ranks in state.waiting.items() for rank in ranks)
    lines = []
    for rank, sync in needed[:8]:
        node = state.node_ns.index(_OPEN, graph.first[rank]) - graph.first[rank]
        what = ("a collective", "a send", "a receive")[graph.syncs.kind[sync]]
        lines.append(f"rank {rank} at its node {node} waits for {what} (sync {sync})")
    more = f", and {len(needed) - 8} more" if len(needed) > 8 else ""
    return (
        f"{len(needed)} of {graph.num_ranks} ranks wait for ever: {'; '.join(lines)}{more}. Every collective must be "
        f"issued by all its members, every receive needs its send, and a rank must send before it waits"
    )
