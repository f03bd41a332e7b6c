"""`labkit.record` around plain scripts: the same counts and bytes as the lab's own run of that plan."""

import copy
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import optimizer as optimizers

import labkit
from labkit import analysis, explain, report
from labkit.engine.layers import layers_of
from labkit.mesh import Mesh
from labkit.rank_files import merge_folder
from labkit.replay import replay

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "scripts" / "train.py"
TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--nproc-per-node=2"]
PLANS = {
    "ddp": {"dp": 2},
    "fsdp2": {"dp": 2, "zero": 3},
    "tp": {"tp": 2},
    "pipeline": {"pp": 2, "microbatches": 4},
}


def recorded(kind: str, out: Path, command: list[str]) -> labkit.Trace:
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(SCRIPT), kind, str(out)], env=env, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return merge_folder(out)


def counts(trace: labkit.Trace) -> pl.DataFrame:
    """What happened in each step on each rank, without times; what only our own loop tells is left out."""
    own = ["load", "zero_grad", "loss", "value", "wait"]  # and waits of no length are not written
    events = trace.events.with_columns(pl.col("kind").cast(pl.String)).filter(~pl.col("kind").is_in(own))
    events = events.filter(pl.col("step") > 0)  # set-up, and torch asking for shapes amid the first step
    keys = ["rank", "step", "kind", "op", "axis", "group", "peer", "microbatch", "dtype"]
    return events.group_by(keys).agg(pl.len(), pl.col("size_bytes").sum()).sort(pl.all())


@pytest.mark.parametrize("kind", PLANS)
def test_a_script_shows_what_the_labs_own_run_shows(kind, tmp_path):
    script, own = recorded(kind, tmp_path, TORCHRUN), labkit.run(labkit.Plan(layers=4, **PLANS[kind]))
    assert counts(script).equals(counts(own))
    assert script.meta.source == "measured" and script.meta.mesh == own.meta.mesh


def test_a_script_on_one_process(tmp_path):
    trace = recorded("plain", tmp_path, [sys.executable])
    steps = trace.of("step")
    assert steps["step"].to_list() == [0, 1, 2] and trace.of("sync").is_empty()
    assert trace.of("forward").filter(pl.col("step") == 1)["layer"].to_list() == ["0", "1", "2", "3"]
    assert trace.of("backward").filter(pl.col("step") == 1)["layer"].to_list() == ["3", "2", "1", "0"]


# ---- in this process


class TwoHeads(nn.Module):
    """A model that takes and gives dictionaries and tuples, as people's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.heads = nn.LSTM(4, 2, batch_first=True)

    def forward(self, batch: dict) -> dict:
        out, (state, _) = self.heads(self.body(batch["x"])[:, None])
        return {"out": out, "state": state}


def train(model: nn.Module, steps: int, *, accumulate: int = 1, evaluate: bool = False) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        for _ in range(accumulate):
            model({"x": torch.ones(3, 4)})["out"].sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if evaluate:
            with torch.no_grad():
                model({"x": torch.ones(1, 4)})


def test_nested_outputs_accumulation_and_evaluation(tmp_path):
    with labkit.record(tmp_path):
        train(TwoHeads(), 2, accumulate=3, evaluate=True)
    trace = merge_folder(tmp_path)
    forwards = trace.of("stage_forward")
    assert forwards["step"].to_list() == [0] * 3 + [1] * 3 and forwards["microbatch"].to_list() == [0, 1, 2] * 2
    assert trace.of("forward")["layer"].to_list() == ["body", "heads"] * 6  # evaluation is not among them
    assert trace.of("backward")["layer"].to_list() == ["heads", "body"] * 6
    assert trace.of("optimizer")["step"].to_list() == [0, 1]
    steps = trace.of("step").sort("step")
    assert steps["end_ns"][0] == steps["start_ns"][1]


def test_everything_is_put_back(tmp_path):
    before = torch.autograd.backward, dist.distributed_c10d._new_process_group_helper
    model = TwoHeads()
    with labkit.record(tmp_path):
        train(model, 1)
    assert (torch.autograd.backward, dist.distributed_c10d._new_process_group_helper) == before
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert not any("forward" in vars(part) for part in model.modules())
    assert not nn.modules.module._global_forward_hooks and not nn.modules.module._global_forward_pre_hooks
    assert not optimizers._global_optimizer_pre_hooks and not optimizers._global_optimizer_post_hooks


def test_an_error_inside_keeps_what_was_recorded(tmp_path):
    with pytest.raises(ZeroDivisionError), labkit.record(tmp_path):
        train(TwoHeads(), 2)
        print(1 / 0)
    assert merge_folder(tmp_path).of("step").height == 2


@pytest.mark.parametrize("degrees", [{"tp": 0}, {"dp": -1}, {"pp": 1.5}])
def test_degrees_that_are_none(tmp_path, degrees):
    with pytest.raises(ValueError, match="at least 1"), labkit.record(tmp_path / "out", **degrees):
        pass
    assert not (tmp_path / "out").exists()


def test_degrees_that_do_not_fit_the_ranks(tmp_path):
    with labkit.record(tmp_path, tp=2):
        train(TwoHeads(), 1)
    with pytest.raises(ValueError, match="tp=2, which is 2 ranks, but 1 ran"):
        merge_folder(tmp_path)


def test_layers_of_a_model_in_a_model():
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(3, 4)
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder, self.head = Decoder(), nn.Linear(4, 3)

    assert [name for name, _ in layers_of(Model())] == ["decoder.embed", "decoder.blocks.0", "decoder.blocks.1", "head"]
    assert [name for name, _ in layers_of(nn.Linear(2, 2))] == ["linear"]


# ---- other ways to train


MORE = SCRIPT.with_name("more.py")


RANKS = {"zero1": 2, "no_sync": 2, "two_models": 2, "mesh2d": 4}


@functools.cache
def more(kind: str) -> labkit.Trace:
    """The trace of a kind of scripts/more.py, recorded once."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as out:
        command = [TORCHRUN[0], f"--nproc-per-node={RANKS[kind]}", "--standalone", str(MORE), out, kind]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=170, check=False)
        assert done.returncode == 0, done.stderr
        return merge_folder(Path(out) / kind)


def ops(trace: labkit.Trace, step: int = 1) -> dict[str, int]:
    """How often rank 0 called each collective in a step, set-up left out."""
    syncs = trace.of("sync").filter((pl.col("rank") == 0) & (pl.col("step") == step))
    return dict(syncs.group_by("op").len().iter_rows())


@pytest.mark.full
def test_zero_1_broadcasts_what_each_rank_has_updated():
    found = ops(more("zero1"))
    assert found["all_reduce"] == 1 and found["broadcast"] >= 2
    assert more("zero1").of("optimizer")["step"].to_list() == [0, 0, 1, 1]


def test_accumulated_gradients_are_synchronized_once():
    trace = more("no_sync")
    assert ops(trace, step=2) == {"all_reduce": 1}  # in step 1 DDP tells the ranks its new buckets
    assert trace.of("stage_forward").filter(pl.col("rank") == 0)["microbatch"].to_list() == [0, 1, 2] * 3
    (size,) = trace.of("sync").filter((pl.col("rank") == 0) & (pl.col("step") == 2))["size_bytes"]
    assert size == 4 * (8 * 8 + 8 + 8 * 4 + 4)


@pytest.mark.full
def test_two_models_in_turn():
    """Each turn ends with an optimizer step and the next begins with a forward, so each turn is a step."""
    trace = more("two_models")
    assert trace.of("step").filter(pl.col("rank") == 0)["step"].to_list() == [0, 1, 2, 3]
    assert [ops(trace, step)["all_reduce"] for step in (2, 3)] == [1, 2]  # the judge's gradients; then both models'
    assert trace.of("optimizer").filter(pl.col("rank") == 0).height == 4


@pytest.mark.full
def test_a_mesh_of_two_axes():
    trace = more("mesh2d")
    axes = trace.of("sync").filter(pl.col("step") == 1)["axis"].unique().to_list()
    assert set(axes) == {"dp", "tp"} and trace.meta.mesh == Mesh(dp=2, tp=2)


@pytest.mark.parametrize("kind", RANKS)
def test_every_question_can_be_asked(kind):
    trace = more(kind)
    assert labkit.timeline(trace) is not None
    assert trace.events["end_ns"].max() > 0 and analysis.breakdown(trace).height == trace.meta.num_ranks
    assert report.describe(trace) and explain.describe(trace)
    again = replay(trace)
    assert again.meta.source == "replayed" and again.of("sync").height > 0


def test_a_compiled_model_is_one_layer(tmp_path):
    model = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), backend="eager")
    with labkit.record(tmp_path):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    trace = merge_folder(tmp_path)
    assert trace.of("forward")["layer"].to_list() == trace.of("backward")["layer"].to_list() == ["sequential"] * 2
    assert trace.of("stage_forward").height == trace.of("stage_backward").height == trace.of("step").height == 2


def test_a_model_that_is_its_own_layer_is_at_work_inside_its_stage(tmp_path):
    model = nn.Linear(4, 4)
    with labkit.record(tmp_path):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):  # in its first call it is known too late to be wrapped
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    trace = merge_folder(tmp_path)
    for kind in ("forward", "backward"):
        layers, stages = trace.of(kind).sort("start_ns"), trace.of(f"stage_{kind}").sort("start_ns")
        assert layers["layer"].to_list() == ["linear"] * 2 and stages.height == 2
        assert (stages["start_ns"] <= layers["start_ns"]).all() and (layers["end_ns"] <= stages["end_ns"]).all()
        assert (layers["cpu_ns"] >= 0).all()


def test_a_copy_of_a_watched_model_runs_its_own_weights(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with labkit.record(tmp_path):
        model(torch.ones(1, 4)).sum().backward()
        average = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in average.parameters():
                parameter.zero_()
            assert average(torch.ones(1, 4)).abs().sum() == 0 < model(torch.ones(1, 4)).abs().sum()
    assert merge_folder(tmp_path).of("forward").height == 2  # evaluation is not among them


def test_an_error_in_a_model_leaves_the_next_call_watched(tmp_path):
    model = TwoHeads()
    with labkit.record(tmp_path):
        with pytest.raises(KeyError):
            model({})
        train(model, 1)
    assert merge_folder(tmp_path).of("stage_forward").height == 2
    assert not any("forward" in vars(part) for part in model.modules())


def test_a_hook_of_the_users_own_on_a_layers_output_runs_beside_ours(tmp_path):
    seen = []
    body, head = nn.Linear(4, 4), nn.Linear(4, 2)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = body, head

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.body(x)
            handle = hidden.register_hook(lambda grad: seen.append("removed"))
            handle.remove()
            hidden.register_hook(lambda grad: seen.append("kept"))
            return self.head(hidden)

    with labkit.record(tmp_path):
        model = Model()
        for _ in range(2):
            model(torch.ones(1, 4)).sum().backward()
    assert seen == ["kept", "kept"]
    assert merge_folder(tmp_path).of("backward")["layer"].to_list() == ["head", "body"] * 2


def test_a_record_in_a_record_is_refused(tmp_path):
    with labkit.record(tmp_path), pytest.raises(RuntimeError, match="open already"), labkit.record(tmp_path / "inner"):
        pass
    with labkit.record(tmp_path):  # and the next one opens
        train(TwoHeads(), 1)
    assert merge_folder(tmp_path).of("step").height == 1
