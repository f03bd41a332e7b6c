"""A user's own layers work like the built-in ones, also when they are defined on the spot."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import labkit
from labkit.cli import app
from labkit.engine.own import load_task, own_task
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
    reason = r"no linear layer whose outputs divide by 2 in a \(Conv1d: holds no nn.Linear\); b \(Flatten"
    with pytest.raises(PlanError, match=reason):
        labkit.run(Plan(task="own", layers=2, tp=2, global_batch=4), task=own)
    odd = own_task([nn.Linear(3, 5), nn.Linear(5, 3)], rows(3), num_samples=8)
    with pytest.raises(PlanError, match=r"linear0 \(Linear: 5 outputs\); linear1 \(Linear: 3 outputs\)"):
        labkit.run(Plan(task="own", layers=2, tp=2, global_batch=4), task=odd)


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


# ---- other forms of a model


def rows(size: int):
    """A batch function: `size` features, three classes."""
    return lambda i: (
        torch.sin(torch.outer(torch.as_tensor(i) + 1.0, torch.arange(1.0, size + 1))),
        torch.as_tensor(i) % 3,
    )


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """Two blocks and a head, applied in turn; `skips` does more between them."""

    def __init__(self, *, skips: bool = False) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Residual(), Residual()]), nn.Linear(6, 3)
        self.skips = skips

    def forward(self, x):
        y = self.blocks[1](self.blocks[0](x))
        return self.head(y + x if self.skips else y)


SPLIT = ["blocks.0", "blocks.1", "head"]


@pytest.mark.parametrize(
    ("model", "options", "names"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), {}, ("0", "1", "2")),
        (lambda: [nn.Linear(6, 4), nn.Linear(4, 3)], {}, ("linear0", "linear1")),
        (Model, {"split": SPLIT}, ("blocks_0", "blocks_1", "head")),
        (Model, {}, ("model",)),
    ],
)
def test_any_module_equals_serial(model, options, names):
    task = own_task(model(), rows(6), num_samples=60, **options)
    assert task.names == names
    axis = {"pp": 2, "split": (1, len(names) - 1)} if len(names) > 1 else {"dp": 2, "zero": 3}
    plan = Plan(task="own", layers=len(names), dtype="float64", global_batch=12, **axis)
    assert labkit.run(plan, task=task, verify=True).meta.equality["weight_max_abs_diff"] <= 1e-12


@pytest.mark.parametrize(
    ("model", "split", "message"),
    [
        (Model(), ["blocks.0", "blocks.1"], "no part holds the weights head.weight, head.bias"),
        (Model(), ["blocks.0", "tail"], "no module 'tail': it has blocks, blocks.0"),
        (Model(), ["blocks.1", "head", "blocks.0"], "part 'blocks_0' cannot take what the parts before it give"),
        (Model(skips=True), SPLIT, "give something else than the model"),
    ],
    ids=range(4),
)
def test_a_split_that_is_not_the_model_is_refused(model, split, message):
    with pytest.raises(ValueError, match=message):
        own_task(model, rows(6), num_samples=8, split=split)


def test_a_split_of_a_list_is_refused():
    with pytest.raises(TypeError, match="its parts are layers already"):
        own_task([nn.Linear(6, 3)], rows(6), num_samples=8, split=["a"])


@pytest.mark.parametrize(
    ("layers", "loss", "message"),
    [
        ({"rnn": nn.LSTM(6, 4), "out": nn.Linear(4, 3)}, None, r"layer 'rnn' \(LSTM\) gives a tuple"),
        ({"a": nn.Linear(6, 4), "b": nn.Linear(5, 3)}, None,
         r"layer 'b' \(Linear\) cannot take float32 of shape \(2, 4\) from layer 'a' \(Linear\)"),
        ({"a": nn.Linear(5, 3)}, None, r"layer 'a' \(Linear\) cannot take float32 of shape \(2, 6\) from the data"),
        ({"a": nn.Flatten(0)}, None, r"the loss cannot take float32 of shape \(12,\) from layer 'a' \(Flatten\)"),
        ({"a": nn.Linear(6, 3)}, lambda output, target: output, r"the loss gives float32 of shape \(2, 3\)"),
    ],
    ids=range(5),
)  # fmt: skip
def test_layers_that_do_not_fit_are_named_before_a_process_starts(layers, loss, message, monkeypatch):
    monkeypatch.setattr("labkit.lab.POOL", None)
    task = own_task(layers, rows(6), num_samples=8, **({"loss": loss} if loss else {}))
    with pytest.raises(PlanError, match=message):
        labkit.run(Plan(task="own", layers=len(layers), global_batch=4, microbatches=2), task=task)


def test_tied_weights_inside_one_layer_train():
    """An embedding and its transpose as the head: one layer holds both, and gradients of both uses meet."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(3, 4)

        def forward(self, x):
            return self.embed(x) @ self.embed.weight.T

    task = own_task(Tied(), lambda i: (torch.as_tensor(i) % 3, torch.as_tensor(i + 1) % 3), num_samples=9)
    trace = labkit.run(Plan(task="own", layers=1, dp=2, global_batch=6, dtype="float64"), task=task, verify=True)
    assert trace.meta.equality["weight_max_abs_diff"] <= 1e-12


# ---- from a file

FILE = """
import torch
from torch import nn
import labkit

class Half(nn.Module):
    def forward(self, x):
        return x / 2

def batch(indices):
    i = torch.as_tensor(indices)
    return torch.stack([i, i * i], 1) / 10.0, i % 2

def make_task():
    torch.manual_seed(0)
    return labkit.own_task([nn.Linear(2, 4), Half(), nn.Linear(4, 2)], batch, num_samples=20)

def nothing():
    return 3
"""


def test_a_task_in_a_file_runs_from_the_shell(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    out, flags = (
        tmp_path / "t.parquet",
        ["--pp", "2", "--split", "2,1", "--global-batch", "4", "--dtype", "float64", "--verify"],
    )
    result = CliRunner().invoke(app, ["run", "--task", f"{tmp_path / 'mine.py'}:make_task", *flags, "--out", str(out)])
    assert result.exit_code == 0, result.output
    trace = labkit.load(out)
    assert trace.meta.layers == ("linear0", "half1", "linear2")
    assert trace.meta.equality["weight_max_abs_diff"] <= 1e-12


def test_what_a_file_must_hold(tmp_path):
    path = tmp_path / "mine.py"
    with pytest.raises(FileNotFoundError, match="give path"):
        load_task(f"{path}:make_task")
    path.write_text(FILE)
    with pytest.raises(ValueError, match="has no function 'make'"):
        load_task(f"{path}:make")
    with pytest.raises(TypeError, match="nothing gives a int"):
        load_task(f"{path}:nothing")
