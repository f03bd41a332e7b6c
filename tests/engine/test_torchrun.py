"""The same worker runs under torchrun; what the ranks leave behind merges into one trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import labkit
from labkit import analysis
from labkit.plan import Plan
from labkit.rank_files import merge_folder

TORCHRUN = Path(sys.executable).with_name("torchrun")


def torchrun(tmp_path, plan: Plan, num_processes: int) -> subprocess.CompletedProcess:
    (tmp_path / "plan.json").write_text(plan.to_json())
    command = [
        TORCHRUN, "--standalone", f"--nproc-per-node={num_processes}", "-m", "labkit.engine.worker",
        "--plan", tmp_path / "plan.json", "--out", tmp_path / "out",
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_a_plan_under_torchrun_gives_the_same_losses_and_events(tmp_path):
    plan = Plan(pp=2, layers=4, microbatches=4, steps=3)
    done = torchrun(tmp_path, plan, 2)
    assert done.returncode == 0, done.stderr
    trace, here = merge_folder(tmp_path / "out"), labkit.run(plan)
    assert trace.meta.losses == pytest.approx(here.meta.losses, abs=1e-7)
    same = ("forward", "backward", "sync", "step", "load")
    assert {k: analysis.counts(trace)[k] for k in same} == {k: analysis.counts(here)[k] for k in same}
    assert analysis.unmatched_syncs(trace).is_empty()


def test_the_wrong_number_of_processes_is_refused(tmp_path):
    done = torchrun(tmp_path, Plan(dp=2), 1)
    assert done.returncode != 0
    assert "set --nproc-per-node" in done.stderr


def test_what_needs_shared_memory_is_refused(tmp_path):
    done = torchrun(tmp_path, Plan(dp=2, link="eth10"), 2)
    assert done.returncode != 0
    assert "run this plan with `labkit run`" in done.stderr


def test_a_missing_rank_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no rank\*.labkit"):
        merge_folder(tmp_path)
