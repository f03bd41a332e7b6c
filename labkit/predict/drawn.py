"""The predicted step as a Trace, so that the same pictures and analyses serve it.

In: a Training and a Cluster. Out: a Trace of one step (source "predicted"), one rank of every pipeline stage standing
for all its equals. Stage work, messages and waits for them, gradient sync that is not hidden, optimizer. Where ranks
wait for their messages (1F1B of Megatron), an action's message follows it and keeps its rank, or where it sends none
the message it got; with others it only delays the receiver. The gradient sync names no group: its other ranks are not
drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from labkit.cluster import Cluster
from labkit.costs import Training
from labkit.costs.memory import parameters_of_rank
from labkit.costs.traffic import message_bytes
from labkit.mesh import Mesh
from labkit.predict.pipeline import blocked_s, clock
from labkit.predict.step import Prediction, predict
from labkit.predict.syncs import message_time
from labkit.schedule import Schedule, Slot, Slots
from labkit.trace import Meta, Trace, from_events


def predict_trace(training: Training, cluster: Cluster | str) -> Trace:
    """The predicted step as a Trace, one rank of every pipeline stage standing for all its equals."""
    found = predict(training, cluster)
    message_s = message_time(training, found.cluster)
    slots = clock(training, found.stages, message_s)
    held_s = blocked_s(training, message_s)
    last_s = {slot.rank: slot.end for slot in slots}
    events = [event for rank, end_s in last_s.items() for event in _closing_events(rank, found, end_s)]
    messages = _Messages(found, slots, held_s, message_s - held_s)
    events += [_work_event(slot, *messages.around(slot)) for slot in slots]
    events += messages.events()
    return from_events(events, _meta(found, held_s, message_s - held_s))


_NO_LIMIT_BYTES_S = 1e18
_KIND_OF = {"F": "stage_forward", "B": "stage_backward", "I": "stage_backward_input", "W": "stage_backward_weight"}


def _work_event(slot: Slot, before_s: float, after_s: float) -> dict[str, object]:
    stage, kind, microbatch = slot.action
    place = {"rank": slot.rank, "step": 0, "stage": stage, "microbatch": microbatch}
    return {"kind": _KIND_OF[str(kind)], **place, **_times(slot.start + before_s, slot.end - after_s)}


class _Messages:
    """What ranks send each other: a sync on either side, and a wait wherever a rank is kept by it."""

    def __init__(self, found: Prediction, slots: Slots, held_s: float, delay_s: float) -> None:
        self.order: Schedule = slots.schedule
        self.held_s, self.delay_s = held_s, delay_s
        self.slots = {slot.action: slot for slot in slots}
        self.free_s = _free_before(slots)
        self.size_bytes = round(message_bytes(found.training))
        self.group = list(Mesh(pp=found.training.pp).group("pp", 0))
        self.numbers: dict[tuple[int, int], int] = {}

    def around(self, slot: Slot) -> tuple[float, float]:
        """How long a message keeps the rank before and after its work in this slot: what it sends, else what it got."""
        if slot.action.kind == "W":
            return 0.0, 0.0
        return (0.0, self.held_s) if self.order.receiver_of(slot.action) else (self.held_s, 0.0)

    def events(self) -> Iterator[dict[str, object]]:
        """In the order in which they are sent, which numbers those of a pair."""
        for slot in sorted(self.slots.values(), key=lambda slot: slot.end):
            target = self.order.receiver_of(slot.action)
            if target is not None:
                yield from self._message(slot, self.slots[target])

    def _message(self, sender: Slot, receiver: Slot) -> Iterator[dict[str, object]]:
        pair = (sender.rank, receiver.rank)
        number = self.numbers[pair] = self.numbers.get(pair, -1) + 1
        kept_s = self.around(receiver)[0]
        sent_s, there_s = sender.end - self.held_s, receiver.start + kept_s if kept_s else sender.end + self.delay_s
        yield from self._side("send", sender, receiver.rank, number, sent_s, sender.end)
        asked_s = self.free_s[receiver.action]
        yield from self._side("recv", receiver, sender.rank, number, min(asked_s, there_s), there_s)

    def _side(
        self, op: str, slot: Slot, peer: int, number: int, start_s: float, end_s: float
    ) -> Iterator[dict[str, object]]:
        stage, _, microbatch = slot.action
        row = {"rank": slot.rank, "step": 0, "stage": stage, "microbatch": microbatch, "op": op, "axis": "pp"}
        row |= {"group": self.group, "peer": peer, "seq": number, "dtype": "bfloat16", **_times(start_s, end_s)}
        yield {"kind": "sync", **row, "size_bytes": self.size_bytes}
        if row["end_ns"] > row["start_ns"]:
            yield {"kind": "wait", **row}


def _free_before(slots: Slots) -> dict[object, float]:
    """Of each action, when its rank was through with the one before."""
    firsts = {slot.action: 0.0 for slot in slots}
    return firsts | {after.action: before.end for before, after in pairwise(slots) if before.rank == after.rank}


def _closing_events(rank: int, found: Prediction, start_s: float) -> list[dict[str, object]]:
    """Gradient sync that is not hidden, optimizer, and the step around it all, from the end of the rank's own work."""
    synced_s = start_s + found.breakdown["dp_sync_exposed"]
    end_s = synced_s + found.breakdown["optimizer"]
    events = [
        {"kind": "optimizer", "rank": rank, "step": 0, **_times(synced_s, end_s)},
        {"kind": "step", "rank": rank, "step": 0, **_times(0.0, end_s)},
    ]
    if synced_s > start_s:
        sync = {"op": "all_reduce", "axis": "dp", "group": None, "seq": 0, "dtype": found.training.dtype}
        size = round(parameters_of_rank(found.training, rank) * found.training.gradient_bytes)
        row = {"rank": rank, "step": 0, **sync, **_times(start_s, synced_s)}
        events += [{"kind": "sync", **row, "size_bytes": size}, {"kind": "wait", **row}]
    return events


def _times(start_s: float, end_s: float) -> dict[str, object]:
    return {"start_ns": round(start_s * 1e9), "end_ns": round(end_s * 1e9)}


def _meta(found: Prediction, held_s: float, delay_s: float) -> Meta:
    training = found.training
    rate = message_bytes(training) / held_s if held_s else _NO_LIMIT_BYTES_S
    plan = {
        "task": "gpt",
        "pp": training.pp,
        "dp": 1,
        "tp": 1,
        "schedule": training.schedule if training.pp > 1 else None,
    }
    plan |= {"microbatches": training.num_microbatches, "virtual": training.virtual}
    if training.pp > 1:  # what a replay takes for the cost of a message, beside which any other link can be set
        plan["link"] = {"pp": {"latency_s": delay_s, "bandwidth_bytes_s": rate, "name": found.cluster.name}}
    each = training.dp * training.tp
    note = f"each rank shown stands for {each} equal ones (dp {training.dp} x tp {training.tp}); nothing was run"
    return Meta(
        source="predicted",
        plan=plan,
        num_ranks=training.pp,
        seconds={"predicted_step": found.step_s},
        notes=(note,),
        cluster=found.cluster.name,
    )
