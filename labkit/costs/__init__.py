"""Closed forms: parameters, FLOPs, memory and traffic, each with its paper and equation. Pure arithmetic.

In: a `Model` (sizes of a GPT) and a `Training` (how it is cut and fed). Out: counts and bytes. What they cost in
seconds is for `predict`. labkit's own small tasks have their own exact counts in tasks.py.

    model.py     Model: parameters and FLOPs            memory.py   activations, parameters, gradients, optimizer state
    training.py  Training: degrees, batch, recompute    traffic.py  bytes of every sync, by axis
    layer.py     what one layer computes, product by product        tasks.py    labkit's digits and chars
"""

from labkit.costs.memory import (
    Memory,
    activation_bytes_per_layer,
    memory_of_stage,
    peak_memory,
    state_bytes,
    zero_bytes,
)
from labkit.costs.model import Model, hardware_flops, model_flops, num_parameters, parameters_of_layer
from labkit.costs.tasks import TaskMemory, task_memory
from labkit.costs.traffic import Traffic, traffic
from labkit.costs.training import Training

__all__ = [
    "Memory",
    "Model",
    "TaskMemory",
    "Traffic",
    "Training",
    "activation_bytes_per_layer",
    "hardware_flops",
    "memory_of_stage",
    "model_flops",
    "num_parameters",
    "parameters_of_layer",
    "peak_memory",
    "state_bytes",
    "task_memory",
    "traffic",
    "zero_bytes",
]
