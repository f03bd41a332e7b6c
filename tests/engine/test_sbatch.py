"""The Slurm script: it parses, and what it starts works, here with stand-ins for Slurm's own two commands."""

import os
import subprocess
import sys
from pathlib import Path

import labkit

SCRIPT = Path(__file__).parents[2] / "assets" / "labkit.sbatch"


def run(*args: object, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", *map(str, args)], capture_output=True, text=True, timeout=170, check=False, env=os.environ | env
    )


def test_it_parses():
    assert run("-n", SCRIPT).returncode == 0


def test_it_says_what_it_needs():
    assert "give the plan: sbatch labkit.sbatch plan.json out" in run(SCRIPT).stderr


def test_its_torchrun_line_gives_a_trace(tmp_path):
    commands = {"srun": '"$@"', "scontrol": "echo localhost"}
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    plan = labkit.Plan(dp=2, layers=2)
    (tmp_path / "plan.json").write_text(plan.to_json())
    slurm = {"SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "RANKS_PER_NODE": "2"}
    done = run(
        SCRIPT, tmp_path / "plan.json", tmp_path / "out", **slurm, PATH=f"{tmp_path}:{os.environ['PATH']}",
        LABKIT_BIN=str(Path(sys.executable).parent), MASTER_PORT="0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trace = labkit.load(tmp_path / "out" / "trace.parquet")
    assert labkit.Plan.from_dict(trace.meta.plan) == plan and trace.of("step").height == 2 * plan.steps
