"""The predicted step as a Trace, so that the same pictures and analyses serve it.

In: a Training and a Cluster. Out: a Trace of one step (source "predicted"), one rank of every pipeline stage standing
for all its equals. Stage work, gradient sync that is not hidden, optimizer; waits on messages lie in the work's slot.
The gradient sync names no group: its other ranks are not drawn.
"""

from __future__ import annotations

from labkit.cluster import Cluster
from labkit.costs import Training
from labkit.costs.memory import parameters_of_rank
from labkit.predict.step import Prediction, clock, message_time, predict
from labkit.schedule import Slot
from labkit.trace import Meta, Trace, from_events


def predict_trace(training: Training, cluster: Cluster | str) -> Trace:
    """The predicted step as a Trace, one rank of every pipeline stage standing for all its equals."""
    found = predict(training, cluster)
    slots = clock(training, found.stages, message_time(training, found.cluster))
    end_s = max(slot.end for slot in slots)
    events = [event for rank in range(training.pp) for event in _closing_events(rank, found, end_s)]
    events += [_work_event(slot) for slot in slots]
    return from_events(events, _meta(found))


_KIND_OF = {"F": "stage_forward", "B": "stage_backward", "I": "stage_backward_input", "W": "stage_backward_weight"}


def _work_event(slot: Slot) -> dict[str, object]:
    stage, kind, microbatch = slot.action
    place = {"rank": slot.rank, "step": 0, "stage": stage, "microbatch": microbatch}
    return {"kind": _KIND_OF[str(kind)], **place, **_times(slot.start, slot.end)}


def _closing_events(rank: int, found: Prediction, start_s: float) -> list[dict[str, object]]:
    """Gradient sync that is not hidden, optimizer, and the step around it all."""
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


def _meta(found: Prediction) -> Meta:
    training = found.training
    plan = {
        "task": "gpt",
        "pp": training.pp,
        "dp": 1,
        "tp": 1,
        "schedule": training.schedule if training.pp > 1 else None,
    }
    plan |= {"microbatches": training.num_microbatches, "virtual": training.virtual}
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
