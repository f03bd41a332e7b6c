"""A user's own layers work like the built-in ones, also when they are defined on the spot."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import labkit
from labkit.engine.tasks import own_task
from labkit.plan import Plan, PlanError


def make_task(sizes=(6, 16, 16, 3)):
    torch.manual_seed(3)

    class Doubled(nn.Module):  # local: only pickling by value can carry it
        def forward(self, x):
            return 2 * torch.tanh(x)

    layers = {}
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers[f"linear{i}"] = nn.Linear(a, b)
        layers[f"act{i}"] = Doubled()

    def batch(indices: np.ndarray):
        x = torch.from_numpy(np.sin(np.outer(indices + 1, np.arange(1, sizes[0] + 1))))
        return x, torch.from_numpy(indices % sizes[-1])

    return own_task(layers, batch, num_samples=100)


@pytest.mark.parametrize(
    "changes",
    [{"dp": 2}, {"tp": 2}, {"pp": 2}, {"pp": 3, "schedule": "gpipe", "microbatches": 4}, {"dp": 2, "zero": 3},
     {"dp": 2, "tp": 2}, {"pp": 3, "schedule": "zbv", "virtual": 2}],
    ids=str,
)  # fmt: skip
def test_own_layers_equal_serial(changes):
    plan = Plan(task="own", layers=6, dtype="float64", steps=5, global_batch=48, optimizer="adam", **changes)
    trace = labkit.run(plan, task=make_task(), verify=True)
    assert max(v for k, v in trace.meta.equality.items() if k.endswith("diff")) <= 1e-12
    assert trace.meta.layers == ("linear0", "act0", "linear1", "act1", "linear2", "act2")


def test_a_task_says_what_is_wrong_with_its_layers():
    with pytest.raises(TypeError, match="layer 'a' is a int"):
        own_task({"a": 3}, None, num_samples=1)
    with pytest.raises(ValueError, match="without dots"):
        own_task({"a.b": nn.Identity()}, None, num_samples=1)
    with pytest.raises(ValueError, match="its own name"):
        own_task([("a", nn.Identity()), ("a", nn.Identity())], None, num_samples=1)


def test_tensor_parallelism_needs_a_linear_layer():
    layers = {"a": nn.Conv1d(1, 1, 1), "b": nn.Flatten()}
    own = own_task(layers, lambda i: (torch.zeros(len(i), 1, 4), torch.zeros(len(i), dtype=torch.long)), num_samples=8)
    with pytest.raises(PlanError, match="no linear layer"):
        labkit.run(Plan(task="own", layers=2, tp=2, global_batch=4), task=own)


def test_what_a_task_must_be_is_said():
    shared = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="'a' and 'b' share weights"):
        own_task({"a": shared, "b": shared}, None, num_samples=1)
    with pytest.raises(ValueError, match="layer name 'training'"):
        own_task({"training": nn.Identity()}, None, num_samples=1)
    short = own_task({"a": nn.Linear(1, 2)}, lambda i: (torch.zeros(3, 1), torch.zeros(3).long()), num_samples=8)
    with pytest.raises(labkit.RunError, match="gave 3 inputs and 3 targets for 8 samples"):
        labkit.run(Plan(task="own", layers=1, global_batch=8), task=short)


def test_a_layer_that_passes_its_input_on_is_told_apart():
    layers = {"a": nn.Linear(1, 4), "same": nn.Identity(), "b": nn.Linear(4, 2)}
    task = own_task(layers, lambda i: (torch.zeros(len(i), 1), torch.zeros(len(i)).long()), num_samples=8)
    rows = labkit.run(Plan(task="own", layers=3, steps=1, global_batch=8), task=task).of("backward").sort("start_ns")
    assert rows["layer"].to_list() == ["b", "same", "a"]


@pytest.mark.parametrize("grad_sync", ["naive", "ring"])
def test_a_frozen_layer_needs_no_sync(grad_sync):
    layers = {"a": nn.Linear(1, 4).requires_grad_(False), "b": nn.Linear(4, 2)}
    task = own_task(layers, lambda i: (torch.ones(len(i), 1), torch.zeros(len(i)).long()), num_samples=8)
    trace = labkit.run(
        Plan(task="own", layers=2, dp=2, grad_sync=grad_sync, global_batch=8, dtype="float64"), task=task, verify=True
    )
    assert trace.meta.equality["weight_max_abs_diff"] <= 1e-12
