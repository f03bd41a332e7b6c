"""How long the syncs of a step and its update take. A Training and a Cluster in, seconds out."""

from __future__ import annotations

from labkit.cluster import Cluster, Group, group_of
from labkit.costs import Training
from labkit.costs.memory import parameters_of_rank
from labkit.costs.traffic import message_bytes

OPTIMIZER_PASSES_BYTES = 52
"""Bytes moved per parameter by a mixed precision Adam step: unscale to float32 6, norm 4, clip 8, update 28 (reads
gradient, two moments, weight; writes two moments, weight), copy to 16 bits 6."""


def tensor_sync_s(training: Training, cluster: Cluster) -> float:
    """Both syncs of one layer in one direction; all-gather plus reduce-scatter take what an all-reduce takes."""
    if training.tp == 1:
        return 0.0
    group = _group(training, cluster, "tp")
    return 2 * cluster.collective_s("all_reduce", message_bytes(training), "tp", group)


def message_time(training: Training, cluster: Cluster) -> float:
    """Seconds of one message between pipeline ranks, and of putting it together again where it was cut over tp."""
    if training.pp == 1:
        return 0.0
    group, size = _group(training, cluster, "pp"), message_bytes(training)
    if training.tp == 1 or not (training.scatter_gather or training.sequence_parallel):
        return cluster.message_s(size, "pp", group)
    sent = cluster.message_s(size / training.tp, "pp", group)
    if training.sequence_parallel:
        return sent
    return sent + cluster.collective_s("all_gather", size, "tp", _group(training, cluster, "tp"))


def gradient_s(training: Training, cluster: Cluster, backward_s: float) -> float:
    """Gradient sync that backward does not hide, and the tied embedding's sync between first and last rank."""
    total = _embedding_s(training, cluster)
    if training.dp == 1:
        return total
    group = _group(training, cluster, "dp")
    parameters = parameters_of_rank(training)
    size = parameters * training.gradient_bytes
    sync_s = cluster.collective_s("all_reduce", size, "dp", group)
    if training.zero == 3:
        gather_s = cluster.collective_s("all_gather", 2 * parameters, "dp", group)
        sync_s = sync_s / 2 + 2 * training.num_microbatches * gather_s
    if training.overlap_dp:  # all but the last bucket goes on during backward: the first layers' gradients come last
        last_bucket = sync_s / max(training.layers_per_rank[0], 1)
        sync_s = max(last_bucket, sync_s - backward_s)
    return total + sync_s


def _embedding_s(training: Training, cluster: Cluster) -> float:
    if training.pp == 1:
        return 0.0
    model = training.model
    size = model.vocabulary * model.hidden * training.gradient_bytes / training.tp
    group = _group(training, cluster, "pp")
    return cluster.collective_s("all_reduce", size, "pp", Group(2, 2 if group.num_nodes == 1 else 1))


def optimizer_s(training: Training, cluster: Cluster) -> float:
    """The update: bound by memory; with offload by the CPU link, which carries gradients
    down and parameters up (the update on the CPU itself is left out)."""
    parameters = parameters_of_rank(training) / (training.dp if training.zero else 1)
    if training.offload:
        return 2 * parameters * 2 / cluster.device.cpu_link.bandwidth_bytes_s
    return cluster.device.stream_s(OPTIMIZER_PASSES_BYTES * parameters)


def _group(training: Training, cluster: Cluster, axis: str) -> Group:
    return group_of(axis, training.mesh, cluster.gpus_per_node)
