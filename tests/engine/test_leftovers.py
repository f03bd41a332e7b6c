"""The ranks' temporary folder goes with its process; what a killed one leaves, the next process clears."""

import os
import subprocess
import sys
import textwrap

import pytest

from labkit import leftovers

RUN = """
    import labkit
    assert labkit.run(labkit.Plan(dp=2, steps=1)).meta.losses
    print("ran", flush=True)
    {then}
"""


def start(folder, then: str) -> subprocess.Popen:
    code = textwrap.dedent(RUN).format(then=then)
    return subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE,
        stdin=subprocess.PIPE, text=True,
    )  # fmt: skip


def folders(parent) -> list[str]:
    """Without torch's cache, which it keeps."""
    return [name for name in os.listdir(parent) if not name.startswith("torchinductor")]


def test_a_killed_process_is_cleared_after_and_a_living_one_is_not(tmp_path, monkeypatch):
    assert start(tmp_path, "").wait(60) == 0
    assert folders(tmp_path) == []
    killed, alive = start(tmp_path, "input()"), start(tmp_path, "input()")
    assert killed.stdout.readline() == alive.stdout.readline() == "ran\n"
    killed.kill()
    killed.wait(10)
    assert len(folders(tmp_path)) == 2
    assert start(tmp_path, "").wait(60) == 0
    (left,) = folders(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    leftovers.clear()
    assert folders(tmp_path) == [left]
    alive.communicate("\n", timeout=60)
    assert alive.returncode == 0 and folders(tmp_path) == []


@pytest.mark.parametrize("name", ["ranks-abc", "labkit-seats-0", "pymp-abc"])
def test_what_is_not_certain_to_be_dead_and_ours_stays(tmp_path, monkeypatch, name):
    (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    leftovers.clear()
    assert os.listdir(tmp_path) == [name]
