"""One thing that happened on one rank: the kinds of event and the columns of a trace.

In: nothing. Out: the vocabulary that recorder, trace, analysis and pictures share.

Two grains of computation are recorded. A *stage* event is what a schedule orders: all the layers a rank holds, for one
microbatch (`stage_forward`, `stage_backward` ...). A *layer* event is one named layer inside it (`forward` ...).
A plan without a pipeline has one stage per replica, so both grains are always there.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What an event is. `of_stage` kinds contain the layer kinds of the same work."""

    STEP = "step"  # one training step of one rank, from loading the batch to the end of the optimizer
    LOAD = "load"  # the batch is fetched; `samples` holds the dataset indices of one microbatch
    ZERO_GRAD = "zero_grad"
    FORWARD = "forward"  # one layer, one microbatch
    RECOMPUTE = "recompute"  # a forward repeated inside the backward (activation checkpointing)
    LOSS = "loss"
    BACKWARD = "backward"  # one layer, one microbatch: input and weight gradients together
    BACKWARD_INPUT = "backward_input"  # only the gradient with respect to the layer's input
    BACKWARD_WEIGHT = "backward_weight"  # only the gradient with respect to the layer's weights
    OPTIMIZER = "optimizer"
    STAGE_FORWARD = "stage_forward"
    STAGE_BACKWARD = "stage_backward"
    STAGE_BACKWARD_INPUT = "stage_backward_input"
    STAGE_BACKWARD_WEIGHT = "stage_backward_weight"
    SYNC = "sync"  # a collective or a message: from the moment this rank issued it to its completion
    WAIT = "wait"  # an interval in which this rank was blocked until a sync completed
    VALUE = "value"  # a tensor's value, kept because the plan asked for values
    KERNEL = "kernel"  # imported: work on a GPU (or an outermost CPU operator), named by `layer`; copies by `op`


KINDS = tuple(Kind)
"""Kinds by code: recorders write `KINDS.index(kind)`."""

STAGE_KINDS = (Kind.STAGE_FORWARD, Kind.STAGE_BACKWARD, Kind.STAGE_BACKWARD_INPUT, Kind.STAGE_BACKWARD_WEIGHT)
LAYER_KINDS = (Kind.FORWARD, Kind.RECOMPUTE, Kind.LOSS, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)

NONE = -1
"""Stands for "does not apply" in a recorder's integer row; a null in the table."""

FIELDS = (
    "kind",
    "step",
    "microbatch",
    "stage",
    "layer",
    "start_ns",
    "end_ns",
    "cpu_ns",
    "late_ns",
    "op",
    "group",
    "peer",
    "size_bytes",
    "dtype",
    "seq",
    "param_bytes",
    "grad_bytes",
    "optimizer_bytes",
    "activation_bytes",
    "extra",
)
"""The integer row a recorder appends, in order. kind, layer, op, group and dtype are codes into a part's names."""

COLUMNS = {
    "rank": "the rank it happened on",
    "kind": "one of `Kind`",
    "step": "training step from 0; null during set-up",
    "microbatch": "microbatch from 0, within the step and the data-parallel replica",
    "stage": "pipeline stage from 0; 0 without a pipeline",
    "layer": "name of the layer; of a value: what the value is of",
    "start_ns": "start (of a sync: issue), in ns since the trace's origin, one clock for all ranks of a host",
    "end_ns": "end (of a sync: completion as the rank saw it)",
    "cpu_ns": "CPU time of the rank's thread inside the event, unpaced to within 20 us; null where it was not taken",
    "late_ns": "paced or emulated only: how much later than the set time the real work was ready",
    "op": "of sync and wait: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send, recv ...; "
    "of a value: weight, input, output, grad_local (before the sync), grad (after), sync_in, sync_out",
    "axis": "of sync and wait: mesh axis of the group (dp, tp, pp, or a combination such as dp+tp)",
    "group": "of sync and wait: global ranks of the group",
    "peer": "of send and recv: the other rank",
    "size_bytes": "of sync: bytes of the whole tensor (all_gather: gathered, reduce_scatter: before scattering)",
    "dtype": "of sync and value",
    "seq": "of sync and wait: n-th operation of this group (collectives) or between this pair (send and recv)",
    "param_bytes": "parameters held by the rank when the event ended (FSDP: shards and gathered ones)",
    "grad_bytes": "gradients held when the event ended",
    "optimizer_bytes": "optimizer state held when the event ended",
    "activation_bytes": "activations kept for backward when the event ended",
    "samples": "of load: dataset indices of the microbatch",
    "shape": "of a value",
    "data": "of a value: its little-endian bytes, row by row",
}
"""Every column of a trace's table and what it means."""
