"""What each operation of a trace costs: operations and changes in, costs by number out.

The cost is split as the graph needs it: `transfer_ns` occupies the lane, `latency_ns` does not. Where the plan emulates
a link, it says how; elsewhere a collective's whole cost occupies its lane, and a message's does not:

    collective  its completion - the latest of its last member's arrival and the completion before it on its lane
    message     its completion - the latest of its send and its receiver's asking for it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from labkit.link import Link, link_seconds
from labkit.replay.changes import Changes
from labkit.replay.columns import Ints, first_of_equal, mixed, order_by
from labkit.replay.graph import COLLECTIVE, RECV, SEND, Syncs
from labkit.replay.matching import Matching, Operations


@dataclass(frozen=True)
class Wiring:
    """What emulated the links of a trace, and how exact its times are."""

    links: Mapping[str, Link]
    scale: float  # ns of the trace for one second of a link
    exact: bool  # times are set or computed, not stamped by whoever waited

    @classmethod
    def of(cls, plan: Mapping[str, Any], source: str) -> Wiring:
        links = {
            axis: Link(**link) if isinstance(link, dict) else link for axis, link in (plan.get("link") or {}).items()
        }
        exact = bool(plan.get("pace")) or source in ("replayed", "predicted", "planned")
        return cls(links, float(plan.get("time_scale") or 1.0) * 1e9, exact)


@dataclass(frozen=True)
class Costs:
    """Of every operation, by number.

    emulated  a link says its cost       as_was  its cost is the captured one, with all that this machine added
    rendezvous: a send is over only once its receiver has asked for it, as with gloo
    """

    transfer_ns: Ints
    latency_ns: Ints
    emulated: Ints
    as_was: Ints
    rendezvous: bool


@dataclass(frozen=True)
class Priced:
    """Operations with their costs, and of every known wait row whether it blocked, and how much longer than needed."""

    operations: Operations
    costs: Costs
    blocked: Ints
    lag_ns: Ints

    def syncs(self) -> Syncs:
        """As the graph takes them. When a recv was asked for matters only where it costs something by itself."""
        operations, costs = self.operations, self.costs
        free = (operations.kind == RECV) & (costs.latency_ns == 0) & (not costs.rendezvous)
        columns = (operations.kind, np.where(free, 0, operations.num_members), operations.partner, operations.lane)
        return Syncs(*(column.tolist() for column in (*columns, costs.transfer_ns, costs.latency_ns)))


def price(rows: pl.DataFrame, matching: Matching, wiring: Wiring, changes: Changes) -> Priced:
    """The costs of the operations of `rows` under `changes`."""
    operations = matching.operations
    was, free_ns, extra_ns = _expected(rows, operations, wiring)
    base_ns = _with_recv_cost(operations, was, free_ns, extra_ns, wiring)
    blocked, lag_ns = _judged(rows, matching, was, free_ns, extra_ns, base_ns)
    costs = replace(was, latency_ns=was.latency_ns + extra_ns)
    costs = _changed(rows, operations, costs, wiring, changes)
    return Priced(operations, costs, blocked, lag_ns)


# ---- as it was


def _expected(rows: pl.DataFrame, operations: Operations, wiring: Wiring) -> tuple[Costs, Ints, Ints]:
    """Costs, when each collective and send frees its lane by the links (or by what collectives took), what came on top.

    Receives are still to follow.
    """
    known, transfer_ns, latency_ns = _link_costs(rows, operations, wiring.links, wiring.scale)
    sending = np.flatnonzero(operations.kind != RECV)
    order = sending[order_by(operations.lane[sending], operations.arrival_ns[sending])]
    begins = first_of_equal(operations.lane[order])
    arrival_ns, end_ns = operations.arrival_ns[order], operations.end_ns[order]
    together = operations.kind[order] == COLLECTIVE
    before_ns = np.where(begins, 0, np.concatenate([[0], end_ns[:-1]])[: len(order)])
    took_ns = np.maximum(end_ns - np.maximum(arrival_ns, before_ns), 0)
    transfer_ns[order] = np.where(known[order], transfer_ns[order], np.where(together, took_ns, 0))
    latency_ns[operations.kind == RECV], known[operations.kind == RECV] = 0, False
    transfer_ns[operations.kind == RECV] = 0
    free_ns, extra_ns = np.zeros(len(known), np.int64), np.zeros(len(known), np.int64)
    free_ns[order] = _lane_free(arrival_ns, transfer_ns[order], begins)
    late_ns = np.maximum(end_ns - free_ns[order] - latency_ns[order], 0)
    extra_ns[order] = np.where(together, late_ns, 0)
    sends = operations.kind == SEND
    rendezvous = bool((sends & ~known & (operations.end_ns > operations.arrival_ns)).any())
    return Costs(transfer_ns, latency_ns, known, np.ones(len(known), bool), rendezvous), free_ns, extra_ns


def _lane_free(arrival_ns: Ints, transfer_ns: Ints, begins: Ints) -> Ints:
    """When each is through its lane, one after the other in this order; `begins` marks the first of each lane.

    free = max(arrival, free of the one before) + transfer = total + max over those up to here (arrival - total before).
    """
    if not len(begins):
        return arrival_ns
    lane = np.cumsum(begins) - 1
    total_ns = np.cumsum(transfer_ns)
    total_ns = total_ns - (total_ns - transfer_ns)[begins][lane]
    slack_ns = arrival_ns - total_ns + transfer_ns
    apart = lane * (int(slack_ns.max()) - int(slack_ns.min()) + 1)  # so that no lane's maximum reaches into the next
    return total_ns + np.maximum.accumulate(slack_ns + apart) - apart


def _link_costs(
    rows: pl.DataFrame, operations: Operations, links: Mapping[str, Link], scale: float
) -> tuple[Ints, Ints, Ints]:
    """Whether each operation's axis has a link, and by it transfer and latency in ns."""
    num = len(operations.kind)
    per_byte, latency_ns, known = np.zeros(num), np.zeros(num, np.int64), np.zeros(num, bool)
    if links:
        case = mixed(operations.axis, operations.op, operations.num_ranks)
        _, first, of_case = np.unique(case, return_index=True, return_inverse=True)
        for number, place in enumerate(first.tolist()):
            row = rows.row(int(operations.row[place]), named=True)
            link = links.get((row["axis"] or "").partition("+")[0])
            if link is not None:
                here = of_case == number
                latency_s, per_byte_s = link_seconds(link, row["op"], 1, int(operations.num_ranks[place]))
                per_byte[here], latency_ns[here], known[here] = per_byte_s * scale, int(latency_s * scale), True
    return known, (per_byte * operations.size_bytes).astype(np.int64), latency_ns


def _with_recv_cost(operations: Operations, was: Costs, free_ns: Ints, extra_ns: Ints, wiring: Wiring) -> Ints:
    """Fill in what each receive took on top of the link. Seen only where the receiver was already waiting for it.

    Gives for each operation the later of its data's and its own arrival.
    """
    receives = operations.kind == RECV
    partner = operations.partner
    met = receives & (partner >= 0)
    base_ns = operations.arrival_ns.copy()
    base_ns[met] = np.maximum(base_ns[met], (free_ns + was.latency_ns)[partner[met]])
    was.emulated[met] = was.emulated[partner[met]]
    took_ns = np.maximum(operations.end_ns - base_ns, 0)
    wait_ns = operations.wait_ns
    seen = wiring.exact | (wait_ns < 0) | (wait_ns <= base_ns)
    extra_ns[receives] = took_ns[receives]
    for axis in np.unique(operations.axis[receives & ~seen]):
        here = receives & (operations.axis == axis)
        typical = int(np.median(took_ns[here & seen])) if (here & seen).any() else 0
        here &= ~seen
        extra_ns[here] = np.minimum(typical, np.maximum(wait_ns - base_ns, 0)[here])
    return base_ns


def _judged(
    rows: pl.DataFrame, matching: Matching, was: Costs, free_ns: Ints, extra_ns: Ints, base_ns: Ints
) -> tuple[Ints, Ints]:
    """Which waits blocked, and how much later than the completion each went on."""
    operations, partner = matching.operations, matching.operations.partner
    asked_ns = np.where(partner >= 0, operations.arrival_ns[partner], 0) if was.rendezvous else 0
    sends = np.maximum(free_ns, asked_ns)
    done_ns = np.select(
        [operations.kind == COLLECTIVE, operations.kind == SEND],
        [free_ns + was.latency_ns + extra_ns, sends],
        base_ns + extra_ns,
    )[matching.wait_sync]
    start_ns, end_ns = (rows[name].gather(matching.wait_row).to_numpy() for name in ("start_ns", "end_ns"))
    return done_ns > start_ns, np.maximum(end_ns - done_ns, 0)


# ---- under changes


def _changed(rows: pl.DataFrame, operations: Operations, costs: Costs, wiring: Wiring, changes: Changes) -> Costs:
    rendezvous = costs.rendezvous
    if changes.device_time == "cpu":
        costs = _least(costs, (operations.axis, operations.op, operations.size_bytes), ~costs.emulated)
    if changes.link:
        costs = _on_new_link(rows, operations, costs, wiring, changes)
    if changes.infinite_bandwidth:
        known = costs.emulated | ~costs.as_was
        costs = _least(costs, (operations.axis, operations.op), ~known)
        latency_ns = np.where(known, costs.latency_ns, costs.latency_ns + costs.transfer_ns)
        costs = replace(costs, latency_ns=latency_ns, transfer_ns=np.zeros_like(latency_ns))
    if changes.no_sync:
        nothing = np.zeros_like(costs.latency_ns)
        costs = replace(costs, transfer_ns=nothing, latency_ns=nothing, as_was=np.zeros_like(costs.as_was))
    return replace(costs, rendezvous=rendezvous and bool(costs.as_was.all()))


def _least(costs: Costs, alike: tuple[Ints, ...], where: Ints) -> Costs:
    """Captured costs replaced by the least among operations that are alike."""
    case = np.unique(mixed(*alike), return_inverse=True)[1]

    def least(values: Ints) -> Ints:
        found = np.full(case.max(initial=-1) + 1, np.iinfo(np.int64).max)
        np.minimum.at(found, case, values)
        return np.where(where, found[case], values)

    return replace(
        costs,
        transfer_ns=least(costs.transfer_ns),
        latency_ns=least(costs.latency_ns),
        as_was=costs.as_was & ~where,
    )


def _on_new_link(rows: pl.DataFrame, operations: Operations, costs: Costs, wiring: Wiring, changes: Changes) -> Costs:
    """Costs by the new link alone; the latency of a message is counted on its send."""
    new, transfer_ns, latency_ns = _link_costs(rows, operations, changes.link, wiring.scale)
    latency_ns = np.where(operations.kind == RECV, 0, latency_ns)
    return replace(
        costs,
        transfer_ns=np.where(new, transfer_ns, costs.transfer_ns),
        latency_ns=np.where(new, latency_ns, costs.latency_ns),
        as_was=costs.as_was & ~new,
        emulated=costs.emulated | new,
    )
