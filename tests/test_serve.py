"""`labkit lab`: limits for all visitors reach every kernel, through the environment; wrong ones are refused."""

import subprocess

import pytest
from typer.testing import CliRunner

from labkit import serve
from labkit.cli import app
from labkit.seats import Limits, limits


@pytest.fixture
def started(monkeypatch):
    """The environments of servers that would have been started."""
    environments = []

    class Server:
        def __init__(self, command, env):
            environments.append(env)

        def poll(self):
            return 0

        def wait(self):
            return 0

        def terminate(self): ...

    monkeypatch.setattr(subprocess, "Popen", Server)
    monkeypatch.setattr(serve, "_wait_until_ready", lambda *_: False)
    return environments


def lab(*arguments):
    return CliRunner().invoke(app, ["lab", "--no-browser", *arguments])


def test_the_flags_of_a_class_reach_the_kernels(started):
    assert lab("--seats", "8", "--run-limit", "1.5s", "--memory", "2GB", "--idle", "30s").exit_code == 0
    assert limits(started[0]) == Limits(seats=8, run_s=1.5, memory_bytes=2_000_000_000, idle_s=30.0)


def test_without_flags_nothing_is_limited(started, monkeypatch):
    monkeypatch.delenv("LABKIT_SEATS", raising=False)
    assert lab().exit_code == 0
    assert limits(started[0]) == Limits()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--seats", "0"], "LABKIT_SEATS='0': give a number above 0"),
        (["--run-limit", "soon"], "'soon' is not a time"),
        (["--run-limit", "0s"], "LABKIT_RUN_S='0.0': give a number above 0"),
        (["--memory", "2 apples"], "'2 apples' is not a size"),
        (["--idle", "-3s"], "LABKIT_IDLE_S='-3.0'"),
    ],
)
def test_a_wrong_limit_is_refused_before_anything_starts(started, flags, words):
    result = lab(*flags)
    assert result.exit_code == 2 and words in result.output
    assert started == []
