"""Runs the JavaScript tests: positions, clock and words are pure functions and need no browser."""

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
TESTS = sorted((Path(__file__).parent / "node").glob("*.test.mjs"))


@pytest.mark.skipif(
    NODE is None, reason="NODE IS MISSING: the players' geometry is NOT tested; install node 20 or newer"
)
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_javascript(path: Path) -> None:
    done = subprocess.run([NODE, "--test", str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
