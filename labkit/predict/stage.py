"""How long one layer, and one pipeline rank, takes for one microbatch. A Training and a Cluster in, seconds out.

A layer takes, forward: its matrix products by the device's efficiency curve, plus passes over memory, plus two tensor
parallel syncs, and never less than launching its kernels (costs.layer, Device, Cluster).
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.cluster import Cluster, Device
from labkit.costs import Training
from labkit.costs import layer as cost
from labkit.costs.model import parameters_of_layer
from labkit.predict.syncs import tensor_sync_s

LOGIT_PASSES_BYTES = (14, 6)
"""Bytes moved per logit, forward (16 to 32 bit, maximum, exponential, sum, write) and backward."""


@dataclass(frozen=True)
class StageTime:
    """Seconds of one pipeline rank for one microbatch: all its layers, syncs included; `_tp_s` is the sync in them."""

    forward_s: float
    backward_s: float
    weight_s: float
    """The part of backward that only weights need."""
    recompute_s: float
    """The part of backward that repeats forward."""
    tp_s: float

    @property
    def both_s(self) -> float:
        return self.forward_s + self.backward_s


def stage_times(training: Training, cluster: Cluster) -> tuple[StageTime, ...]:
    """Of every pipeline rank; a layer and the output layer are computed once."""
    one, head = layer_time(training, cluster), _head_time(training, cluster.device)
    last = training.pp - 1
    return tuple(
        _stage_time(one, layers, head if rank == last else _NO_TIME)
        for rank, layers in enumerate(training.layers_per_rank)
    )


_NO_TIME = StageTime(0.0, 0.0, 0.0, 0.0, 0.0)


def _stage_time(one: StageTime, layers: int, head: StageTime) -> StageTime:
    return StageTime(
        *(layers * getattr(one, name) + getattr(head, name) for name in ("forward_s", "backward_s", "weight_s")),
        layers * one.recompute_s,
        layers * one.tp_s,
    )


def layer_time(training: Training, cluster: Cluster) -> StageTime:
    """One transformer layer on one rank, one microbatch."""
    device = cluster.device
    sync_s = tensor_sync_s(training, cluster)
    forward = max(_forward_s(training, device), cost.FORWARD_KERNELS * device.launch_s)
    inputs, weights = _backward_s(training, device)
    launch = cost.BACKWARD_KERNELS * device.launch_s
    stretch = max(1.0, launch / (inputs + weights))
    again, again_sync = _again_s(training, device, forward, sync_s)
    backward = (inputs + weights) * stretch + again + sync_s + again_sync
    return StageTime(forward + sync_s, backward, weights * stretch, again + again_sync, 2 * sync_s + again_sync)


def _again_s(training: Training, device: Device, forward_s: float, sync_s: float) -> tuple[float, float]:
    """What backward repeats of forward: (compute, sync)."""
    if training.recompute == "full":
        return forward_s, sync_s
    if training.recompute == "selective":
        model, b, t = training.model, training.microbatch, training.tp
        products = _products_s(device, cost.attention_products(model, b, t), training.dtype)
        moved = device.forward_stretch * cost.pass_bytes(cost.CORE_PASSES, model, b, t)
        return products + device.stream_s(moved), 0.0
    return 0.0, 0.0


def _forward_s(training: Training, device: Device) -> float:
    model, b, t = training.model, training.microbatch, training.tp
    products = (*cost.linear_products(model, b, t), *cost.attention_products(model, b, t))
    moved = cost.pass_bytes(cost.FORWARD_PASSES, model, b, t, sequence_parallel=training.sequence_parallel)
    return _products_s(device, products, training.dtype) + device.stream_s(device.forward_stretch * moved)


def _backward_s(training: Training, device: Device) -> tuple[float, float]:
    """(input gradient and everything between, weight gradient)."""
    model, b, t = training.model, training.microbatch, training.tp
    linear, attention = cost.linear_products(model, b, t), cost.attention_products(model, b, t)
    inputs = [product.backward_input() for product in (*linear, *attention)]
    inputs += [product.backward_weight() for product in attention]  # both factors are activations
    moved = cost.pass_bytes(cost.BACKWARD_PASSES, model, b, t, sequence_parallel=training.sequence_parallel)
    weights = [product.backward_weight() for product in linear]
    inputs_s = _products_s(device, inputs, training.dtype) + device.stream_s(device.backward_stretch * moved)
    return inputs_s, _products_s(device, weights, training.dtype) + _accumulation_s(training, device)


def _accumulation_s(training: Training, device: Device) -> float:
    """Adding a layer's weight gradient to the sum so far: read both, write the new sum; nothing for the first."""
    if training.fused_accumulation:
        return 0.0
    again = 1 - 1 / training.num_microbatches
    return again * device.stream_s(3.0 * training.gradient_bytes * parameters_of_layer(training.model) / training.tp)


def _products_s(device: Device, products: object, dtype: str) -> float:
    return sum(device.matmul_s(p.rows, p.columns, p.depth, batch=p.batch, dtype=dtype) for p in products)


def _head_time(training: Training, device: Device) -> StageTime:
    """The output layer and the loss, on the last pipeline rank."""
    model, b, t = training.model, training.microbatch, training.tp
    product = cost.head_product(model, b, t)
    logits = b * model.sequence * model.vocabulary / t
    forward, backward = (device.stream_s(size * logits) for size in LOGIT_PASSES_BYTES)
    weights = _products_s(device, [product.backward_weight()], training.dtype)
    forward += _products_s(device, [product], training.dtype)
    backward += _products_s(device, [product.backward_input()], training.dtype)
    return StageTime(forward, backward + weights, weights, 0.0, 0.0)
