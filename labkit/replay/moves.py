"""What torch's runtime does on a pipeline rank, messages included. In: a Schedule. Out: `Move`s, in order.

Messages go right after the stage's work; a send is waited for as torch's schedule does: with the next receive (1F1B),
after all forwards (GPipe), or before the optimizer (all others).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from labkit import schedule
from labkit.schedule import Action, Schedule


class Move(NamedTuple):
    """One instruction of a pipeline rank: do an action, or send, receive or wait for what it makes or needs."""

    verb: str  # do, send, recv, wait_send, wait_recv; sum: the replicas' gradients of the action's stage
    action: Action


def pipeline_moves(order: Schedule, rank: int) -> Iterator[Move]:
    """What torch's runtime for this schedule does on `rank`, messages included."""
    cells = [cell if isinstance(cell, tuple) and isinstance(cell[0], Action) else (cell,) for cell in order.cells(rank)]
    pending: list[Action] = []
    last_of = _last_backwards(order, rank)
    single = order.name in ("1f1b", "gpipe", "naive")
    for place, cell in enumerate(cells):
        for action in cell:
            needs = order.sender_of(action) is not None
            if needs:
                yield Move("recv", action)
            if pending and _waits_before(order, rank, place - 1):
                yield from _drain(pending)
            if needs:
                yield Move("wait_recv", action)
            yield Move("do", action)
        if order.name == "1f1b":
            yield from _drain(pending)
        for action in cell:
            if order.receiver_of(action) is not None:
                yield Move("send", action)
                pending.append(action)
        if order.name == "gpipe" and place + 1 == len(cells) // 2:
            yield from _drain(pending)
        if not single:
            yield from (Move("sum", action) for action in cell if action in last_of)
    yield from _drain(pending)
    if single:
        yield from (Move("sum", action) for action in last_of)


def _last_backwards(order: Schedule, rank: int) -> list[Action]:
    """Of each stage on the rank, the action after which its gradients are whole."""
    ends = (schedule.Kind.BACKWARD, schedule.Kind.BACKWARD_WEIGHT)
    return list({action.stage: action for action in order.orders[rank] if action.kind in ends}.values())


def _drain(pending: list[Action]) -> Iterator[Move]:
    yield from (Move("wait_send", action) for action in pending)
    pending.clear()


def _waits_before(order: Schedule, rank: int, place: int) -> bool:
    """torch's 1F1B, steady phase: the send after action `place` is waited for with the next receive."""
    warmup, m = order.num_ranks - rank, order.num_microbatches
    return order.name == "1f1b" and warmup - 1 <= place <= 2 * m - warmup - 1
