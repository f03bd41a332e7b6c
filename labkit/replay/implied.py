"""Where a sync that nobody was seen to wait for would be waited for under other conditions.

It was complete already when its rank needed it, so the trace holds no wait. But a received message is needed by the
stage that uses it, a gradient bucket at the end of its backward, a send with the next receive of its batch, or before
the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from labkit.event import KINDS, STAGE_KINDS, Kind
from labkit.replay.columns import Ints, find, mixed, next_of, text_code
from labkit.replay.graph import COLLECTIVE, RECV, SEND
from labkit.replay.matching import Matching
from labkit.replay.syncs import Priced

_NEVER = np.iinfo(np.int64).max

Columns = Mapping[str, Ints]
"""Of the table of events; `kind` as its place in KINDS."""


def implied_waits(columns: Columns, matching: Matching, priced: Priced, plan: Mapping[str, Any]) -> tuple[Ints, Ints]:
    """Places in `matching.issue_row` of the syncs without a wait that may block, and the time at which each would."""
    issue, sync = matching.issue_row, matching.issue_sync
    seen_ns = np.full(len(issue), -1)
    np.maximum.at(seen_ns, matching.wait_issue, columns["end_ns"][matching.wait_row])
    kind = priced.operations.kind[sync]
    message = (priced.operations.axis[sync] == text_code("pp")) & (kind != COLLECTIVE)
    unseen = seen_ns < 0
    receives = np.flatnonzero(unseen & message & (kind == RECV))
    sends = np.flatnonzero(unseen & message & (kind == SEND) & _may_block(priced)[sync])
    others = np.flatnonzero(unseen & ~message)
    t_ns = seen_ns
    t_ns[receives] = _before_stage(columns, issue[receives])
    if plan.get("schedule") == "1f1b":
        waited = np.flatnonzero((kind == RECV) & (t_ns >= 0))
        t_ns[sends] = _with_batch(columns, issue[sends], issue[waited], t_ns[waited])
    else:
        t_ns[sends] = _before_optimizer(columns, issue[sends])
    t_ns[others] = _after_backward(columns, issue[others], plan)
    places = np.concatenate([receives, sends, others])
    return places, t_ns[places]


def _may_block(priced: Priced) -> Ints:
    """Of each operation, whether waiting for it as a sender can take time: its lane is ever busy, or it is met."""
    operations, costs = priced.operations, priced.costs
    busy_ns = np.zeros(operations.lane.max(initial=-1) + 1, np.int64)
    np.maximum.at(busy_ns, operations.lane, costs.transfer_ns)
    return costs.rendezvous | (busy_ns[operations.lane] > 0)


def _before_stage(columns: Columns, rows: Ints) -> Ints:
    """A received message is waited for before the next work of its stage on its microbatch."""
    stages = np.flatnonzero(np.isin(columns["kind"], [KINDS.index(kind) for kind in STAGE_KINDS]))
    keys = (
        mixed(*(columns[name][these] for name in ("rank", "step", "stage", "microbatch"))) for these in (rows, stages)
    )
    asking, working = keys
    start_ns = columns["start_ns"]
    found = next_of(asking, start_ns[rows], working, start_ns[stages])
    late = found < 0
    t_ns = start_ns[stages[found]] if len(stages) else np.zeros(len(rows), np.int64)
    t_ns[late] = _before_optimizer(columns, rows[late])
    return t_ns


def _before_optimizer(columns: Columns, rows: Ints) -> Ints:
    """Waited for at the end of the step's work: before the optimizer, else when the step ends."""
    if not len(rows):
        return np.zeros(0, np.int64)
    step = columns["step"] - columns["step"].min()
    slot = columns["rank"] * (step.max() + 1) + step
    optimizer_ns, step_ns = np.full(slot.max() + 1, _NEVER), np.zeros(slot.max() + 1, np.int64)
    for kind, best, at, name in (
        (Kind.OPTIMIZER, np.minimum, optimizer_ns, "start_ns"),
        (Kind.STEP, np.maximum, step_ns, "end_ns"),
    ):
        those = columns["kind"] == KINDS.index(kind)
        best.at(at, slot[those], columns[name][those])
    end_ns = np.where(optimizer_ns < _NEVER, optimizer_ns, step_ns)
    return np.maximum(end_ns[slot[rows]], columns["start_ns"][rows])


def _with_batch(columns: Columns, sends: Ints, receives: Ints, received_ns: Ints) -> Ints:
    """torch's 1F1B waits for a send together with the receive that was issued with it, the last one of several."""
    batch, of_receive = (
        mixed(*(columns[name][rows] for name in ("rank", "step", "start_ns"))) for rows in (sends, receives)
    )
    batches, number = np.unique(of_receive, return_inverse=True)
    last_ns = np.zeros(len(batches), np.int64)
    np.maximum.at(last_ns, number, received_ns)
    among = find(batch, batches)
    t_ns = last_ns[among] if len(batches) else np.zeros(len(sends), np.int64)
    t_ns[among < 0] = _before_optimizer(columns, sends[among < 0])
    return t_ns


def _after_backward(columns: Columns, rows: Ints, plan: Mapping[str, Any]) -> Ints:
    """DDP waits for its buckets at the end of backward; everything else is waited for where it is issued."""
    start_ns = columns["start_ns"][rows]
    ddp = (plan.get("zero") or 0) <= 1 and plan.get("tp", 1) * plan.get("pp", 1) == 1
    backwards = np.flatnonzero(columns["kind"] == KINDS.index(Kind.STAGE_BACKWARD))
    if not (ddp and len(rows) and len(backwards)):
        return start_ns
    latest_ns = columns["start_ns"].max()  # counted back from there, the last one before is the next one after
    found = next_of(
        columns["rank"][rows], latest_ns - start_ns,
        columns["rank"][backwards], latest_ns - columns["start_ns"][backwards],
    )  # fmt: skip
    end_ns = columns["end_ns"][backwards[found]]
    bucket = (columns["op"][rows] == text_code("all_reduce")) & (found >= 0) & (start_ns <= end_ns)
    return np.where(bucket, end_ns, start_ns)
