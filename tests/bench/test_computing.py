"""How fast schedules, traces and predictions are computed, beside plain Python loops in the same run. `make bench`.

The peers are what one would write first: a dict of what is done, and a heap of events. They compute the same times,
which is checked before anything is measured.
"""

import heapq
import statistics
import time
from collections import deque
from functools import partial

import pytest
from figures import ratio_of, spread_of

from labkit.costs import Model, Training
from labkit.predict import predict
from labkit.replay import planned_trace, replay
from labkit.replay.captured import captured
from labkit.replay.changes import Changes
from labkit.replay.graph import COLLECTIVE, RECV, SEND, play
from labkit.replay.preview import Clock, preview
from labkit.replay.program import graph_of
from labkit.schedule import Durations, Kind, generate, registry, simulate
from labkit.schedule.waves import waves

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

RANKS, MICROBATCHES, HOP = 64, 512, 0.25
DURATIONS = Durations(forward=1.0, backward_input=1.5, backward_weight=0.75)


def seconds(work, rounds: int = 5, before=lambda: None) -> float:
    """The least of several rounds: others on the machine only ever add."""
    took = []
    for _ in range(rounds):
        before()
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took)


def against(work, peer, before=lambda: None, rounds: int = 3) -> tuple[float, float, list[tuple[float, float]]]:
    """The least times of ours and the peer, and (peer, ours) of each round, in turn."""
    pairs = [(seconds(peer, 1), seconds(work, 3, before)) for _ in range(rounds)]
    return min(ours for _, ours in pairs), min(peer for peer, _ in pairs), pairs


def rate(events: int, took_s: float) -> str:
    return f"{took_s * 1e3:.1f} ms, {events / took_s / 1e6:.2f} M events/s"


def plain_simulation(orders, last: int, durations: Durations, hop: float) -> dict:
    """Poll the ranks in turn; each runs what it can. Of each action its end."""
    done, todo, now = {}, [deque(order) for order in orders], [0.0] * len(orders)
    while any(todo):
        for rank, order in enumerate(todo):
            while order:
                stage, kind, microbatch = order[0]
                if kind == Kind.FORWARD:
                    ready = done.get((stage - 1, "F", microbatch)) if stage else -hop
                elif kind == Kind.BACKWARD_WEIGHT:
                    ready = done.get((stage, "B", microbatch))
                    ready = ready - hop if ready is not None else None
                elif stage == last:
                    ready = done.get((stage, "F", microbatch))
                    ready = ready - hop if ready is not None else None
                else:
                    ready = done.get((stage + 1, "B", microbatch))
                if ready is None:
                    break
                now[rank] = max(now[rank], ready + hop) + durations.of(kind)
                if kind != Kind.BACKWARD_WEIGHT:
                    done[stage, "F" if kind == Kind.FORWARD else "B", microbatch] = now[rank]
                done[order.popleft()] = now[rank]
    return done


@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
def test_a_schedule_against_a_plain_loop(name, figure):
    def cold() -> None:
        registry._generated.cache_clear()
        waves.cache_clear()

    order = generate(name, RANKS, MICROBATCHES)
    done = plain_simulation(order.orders, RANKS - 1, DURATIONS, HOP)
    slots = simulate(order, DURATIONS, hop=HOP)
    assert all(done[slot.action] == pytest.approx(slot.end) for slot in slots[:5000])
    clock, shape = Clock(DURATIONS, HOP), f"schedule {name}, p={RANKS}, m={MICROBATCHES}"

    def peer() -> None:
        plain_simulation(order.orders, RANKS - 1, DURATIONS, HOP)

    for what, before in (("other durations", lambda: None), ("for the first time", waves.cache_clear)):
        ours_s, peer_s, pairs = against(lambda: simulate(order, DURATIONS, hop=HOP), peer, before)
        ratio, spread = ratio_of(pairs)
        figure(
            f"{shape}, {len(slots):,} events: {what}", ours=rate(len(slots), ours_s),
            peer=f"plain loop {peer_s * 1e3:.0f} ms", ratio=f"{ratio:.1f} x", spread=spread, goal="10 x, 100 ms",
        )  # fmt: skip
    whole = [seconds(lambda: preview(generate(name, RANKS, MICROBATCHES), clock), 1, cold) for _ in range(5)]
    figure(
        f"{shape}: made, checked, timed, idle time", ours=f"{min(whole) * 1e3:.0f} ms",
        spread=spread_of([1e3 * took for took in whole], "ms"),
    )  # fmt: skip


def plain_event_loop(graph) -> list[int]:
    """A heap of (time, rank): take the earliest rank, do its next node, put it back. Of each node its time."""
    syncs, at = graph.syncs, list(graph.first[:-1])
    node_ns, done, arrived, free = [-1] * len(graph.code), {}, {}, {}
    there, missing, waiting = {}, list(syncs.num_members), {}
    heap = [(start, rank) for rank, start in enumerate(graph.start_ns)]
    heapq.heapify(heap)

    def complete(sync: int, when: int) -> None:
        done[sync] = when
        for now, rank in waiting.pop(sync, ()):
            heapq.heappush(heap, (now, rank))

    def occupy(sync: int, when: int) -> int:
        free[syncs.lane[sync]] = max(when, free.get(syncs.lane[sync], 0)) + syncs.transfer_ns[sync]
        return free[syncs.lane[sync]]

    def receive(sync: int) -> None:
        asked = arrived.get(sync, None if missing[sync] else 0)
        if sync in there and asked is not None:
            complete(sync, max(there[sync], asked) + syncs.latency_ns[sync])

    while heap:
        now, rank = heapq.heappop(heap)
        node = at[rank]
        if node == graph.first[rank + 1]:
            continue
        code = graph.code[node]
        if code < 0:
            if ~code not in done:
                waiting.setdefault(~code, []).append((now, rank))
                continue
            now += graph.own_ns[node]
            now = done[~code] + graph.lag_ns[node] if done[~code] > now else now
        else:
            now += graph.own_ns[node]
            if syncs.kind[code] == SEND:
                end = occupy(code, now)
                complete(code, end)
                there[syncs.partner[code]] = end + syncs.latency_ns[code]
                receive(syncs.partner[code])
            elif syncs.kind[code] == RECV:
                arrived[code] = now
                receive(code)
            elif syncs.kind[code] == COLLECTIVE:
                arrived[code], missing[code] = max(now, arrived.get(code, 0)), missing[code] - 1
                if not missing[code]:
                    complete(code, occupy(code, arrived[code]) + syncs.latency_ns[code])
        node_ns[node], at[rank] = now, node + 1
        heapq.heappush(heap, (now, rank))
    return node_ns


def test_a_trace_against_a_plain_loop(figure):
    trace = planned_trace(generate("1f1b", RANKS, MICROBATCHES), Durations(forward=1e6), hop_ns=1000)
    graph = graph_of(captured(trace, Changes()).program)
    assert not graph.rendezvous
    assert plain_event_loop(graph) == play(graph).node_ns
    num = trace.events.height
    for what, work, goal in (
        ("the event graph of a trace", lambda: play(graph), "10 x, 1 M events/s"),
        ("`replay` of that trace, table to table", lambda: replay(trace), "-"),
    ):
        ours_s, peer_s, pairs = against(work, lambda: plain_event_loop(graph))
        ratio, spread = ratio_of(pairs)
        figure(
            f"{what}, {RANKS} ranks, {num:,} events", ours=rate(num, ours_s),
            peer=f"plain loop over the graph {peer_s * 1e3:.0f} ms", ratio=f"{ratio:.1f} x", spread=spread, goal=goal,
        )  # fmt: skip


SHAPES = {"1f1b": 1, "interleaved_1f1b": 2, "zb_h1": 1, "zb_h2": 1, "zbv": 2, "interleaved_zb": 2}
"""Schedules, and stages of each rank."""


@pytest.mark.parametrize("name", SHAPES)
def test_predictions(name, figure):
    """The first call, calls with other durations of the same shape, and the same call again."""
    virtual = SHAPES[name]
    plan = {"pp": RANKS, "tp": 8, "global_batch": MICROBATCHES, "schedule": name, "virtual": virtual}
    cases = [Training(model=Model(RANKS * virtual, 1024 * width, 64), **plan) for width in range(4, 12)]
    registry._generated.cache_clear()
    waves.cache_clear()
    first, *others = (1e3 * seconds(partial(predict, case, "a100"), 1) for case in cases)
    again = 1e3 * seconds(partial(predict, cases[0], "a100"))
    figure(
        f"`predict` {name}, {RANKS} pipeline ranks, {MICROBATCHES} microbatches, other durations",
        ours=f"{statistics.median(others):.1f} ms (first call {first:.0f} ms, same again {again:.1f} ms)",
        spread=spread_of(others, "ms"), goal="10 ms",
    )  # fmt: skip


def test_a_large_prediction(figure):
    big = Training(model=Model(128, 25600, 160), dp=6, tp=8, pp=64, global_batch=3072, recompute="full")
    found = [1e3 * seconds(partial(predict, big, "a100"), 1) for _ in range(7)]
    figure(
        f"`predict`, {big.num_ranks:,} ranks, 1f1b", ours=f"{statistics.median(found):.1f} ms",
        spread=spread_of(found, "ms"), goal="10 ms",
    )  # fmt: skip
