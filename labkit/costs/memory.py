"""Bytes a rank holds: parameters, gradients, optimizer state, activations kept for backward.

In: a Training. Out: bytes. Letters: s sequence, b microbatch, h hidden, a heads, t tp, p pp, v stages per rank,
m microbatches, N dp.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.costs.model import Model, parameters_of_layer
from labkit.costs.training import ADAM_STATE_BYTES, Training


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank on its device; `cpu_bytes` are those that offload moved to CPU memory."""

    param_bytes: float
    grad_bytes: float
    optimizer_bytes: float
    activation_bytes: float
    cpu_bytes: float = 0.0

    @property
    def state_bytes(self) -> float:
        """Parameters, gradients and optimizer state."""
        return self.param_bytes + self.grad_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> float:
        """Everything on the device."""
        return self.state_bytes + self.activation_bytes


def zero_bytes(parameters: float, dp: int, zero: int, gradient_bytes: int = 2) -> tuple[float, float, float]:
    """(parameters, gradients, optimizer state) in bytes of one rank, mixed precision Adam.

    Rajbhandari et al. 2019 (arXiv 1910.02054), figure 1: 2, 2 and 12 bytes a parameter, together 16; stage 1 shares
    out the 12 (4 + 12/N), stage 2 the gradients too (2 + 14/N), stage 3 all (16/N).
    7.5 B parameters over 64 ranks: 120, 31.4, 16.6 and 1.9 GB.
    """
    shares = [1 / dp if zero >= stage else 1.0 for stage in (3, 2, 1)]
    per_parameter = (2, gradient_bytes, ADAM_STATE_BYTES)
    held, gradients, optimizer = (parameters * size * share for size, share in zip(per_parameter, shares, strict=True))
    return held, gradients, optimizer


def activation_bytes_per_layer(
    model: Model, microbatch: int, *, tp: int = 1, sequence_parallel: bool = False, recompute: str = "none"
) -> float:
    """Bytes one layer keeps for the backward of one microbatch, 2-byte activations.

    Korthikanti et al. 2022 (arXiv 2205.05198): none: s b h (34 + 5 a s/h), equation 1; tp: s b h (10 + 24/t +
    5 a s/(h t)), equation 2; with sequence parallelism s b h/t (34 + 5 a s/h), equation 4; selective recomputation
    drops the 5 a s/h (table 2); full recomputation keeps the input, 2 s b h.
    """
    s, h, a = model.sequence, model.hidden, model.heads
    unit = s * microbatch * h
    if recompute == "full":
        return 2.0 * unit
    whole, cut = (0, 34) if sequence_parallel else (10, 24)
    attention = 0.0 if recompute == "selective" else 5 * a * s / h
    return unit * (whole + (cut + attention) / tp)


def state_bytes(training: Training, stage: int = 0) -> tuple[float, float, float]:
    """(parameters, gradients, optimizer state) of a rank of pipeline rank `stage`, offload not counted off."""
    return zero_bytes(_parameters_of_rank(training, stage), training.dp, training.zero, training.gradient_bytes)


def memory_of_stage(training: Training, stage: int = 0) -> Memory:
    """What one rank of pipeline rank `stage` holds when it holds most."""
    held, gradients, optimizer = state_bytes(training, stage)
    if training.zero == 3:  # the layer in use and the next one are gathered
        held += 2 * 2.0 * parameters_of_layer(training.model) / training.tp
    activations = _activations_of_rank(training, stage)
    if training.offload:
        return Memory(held, gradients, 0.0, activations, cpu_bytes=optimizer)
    return Memory(held, gradients, optimizer, activations)


def peak_memory(training: Training) -> Memory:
    """The memory of the rank that holds most."""
    return max((memory_of_stage(training, stage) for stage in range(training.pp)), key=lambda m: m.total_bytes)


def parameters_of_rank(training: Training, stage: int = 0) -> float:
    """Parameters one rank computes with, before ZeRO shares them out."""
    return _parameters_of_rank(training, stage)


def _parameters_of_rank(training: Training, stage: int) -> float:
    """Its layers and, on the first and last pipeline rank, the (tied) embedding; all cut over tp."""
    model = training.model
    count = training.layers_per_rank[stage] * parameters_of_layer(model)
    if stage == 0:
        count += (model.vocabulary + model.sequence) * model.hidden
    elif stage == training.pp - 1:
        count += model.vocabulary * model.hidden
    return count / training.tp


def _activations_of_rank(training: Training, stage: int) -> float:
    """Layers x microbatches in flight, the ends of the model, and what recomputation makes at a time."""
    model, b = training.model, training.microbatch
    options = {"tp": training.tp, "sequence_parallel": training.sequence_parallel}
    layer = activation_bytes_per_layer(model, b, recompute=training.recompute, **options)
    total = layer * training.layers_per_rank[stage] * microbatches_in_flight(training, stage)
    total += _ends_bytes(training, stage)
    if training.recompute == "full":
        total += activation_bytes_per_layer(model, b, **options)
    elif training.recompute == "selective":
        total += 5.0 * model.heads * model.sequence**2 * b / training.tp
    return total


def microbatches_in_flight(training: Training, stage: int) -> float:
    """Microbatches whose activations a pipeline rank holds at once, in units of all its layers.

    GPipe: m. 1F1B: p - r on rank r (Narayanan et al. 2021, section 2.2). Interleaved: p (1 + (p-1)/(p v)) on rank 0
    (Korthikanti et al. 2022, section 4.2.3), 2/v less on each next one. ZB-H2: 2 (p - r) - 1. V-shaped: p.
    Never more than m.
    """
    p, v, m = training.pp, training.virtual, training.num_microbatches
    name = training.schedule
    if name == "gpipe":
        return m
    if name == "zb_h2":
        return min(m, 2 * (p - stage) - 1)
    if name in ("zbv", "dualpipev"):
        return min(m, p)
    if v > 1:
        return min(m, p + (p - 1) / v - 2 * stage / v)
    return min(m, p - stage)


def _ends_bytes(training: Training, stage: int) -> float:
    """Embedding dropout, last norm, output layer and logits. Korthikanti et al. 2022, section 4.3.

    s b h p/t for the embedding's dropout on the first rank; 4 s b h/t (1 + V/h) on the last: norm 2, output layer's
    input 2, float32 logits 4 V/h.
    """
    model, t = training.model, training.tp
    unit = model.sequence * training.microbatch * model.hidden / t
    first = unit * min(training.pp, training.num_microbatches) if stage == 0 else 0.0
    last = 4 * unit * (1 + model.vocabulary / model.hidden) if stage == training.pp - 1 else 0.0
    return first + last
