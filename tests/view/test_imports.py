"""The view stands apart: no torch, no engine, no launch."""

import subprocess
import sys

FORBIDDEN = ("torch", "labkit.launch", "labkit.engine", "labkit.plan", "labkit.lab", "sklearn")


def test_the_view_imports_neither_torch_nor_what_runs():
    code = (
        "import sys, labkit.view.controls, labkit.view.batch, labkit.view.voila\n"
        "import labkit.view.all_reduce, labkit.view.batch_flow, labkit.view.matrix_shard\n"
        "import labkit.view.mesh_grid, labkit.view.memory_lanes\n"
        f"print([name for name in {FORBIDDEN!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
