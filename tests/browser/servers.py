"""Voila and JupyterLab for tests: started on the loopback with a private configuration, ended with their kernels."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serve(command: list[str], port: int, ready: str, folder: Path, private: Path) -> Iterator[str]:
    """Run a server until the block ends, then end it and all its kernels."""
    homes = {f"JUPYTER_{kind}_DIR": str(private / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, **homes, "IPYTHONDIR": str(private / "ipython"), "PYTHONPATH": path}
    log = private / "log.txt"
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        _wait_until_up(server, f"http://127.0.0.1:{port}{ready}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _end(server)


def _wait_until_up(server: subprocess.Popen, url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"{url} did not answer within {START_TIMEOUT_S} s:\n{log.read_text()}")


def _end(server: subprocess.Popen) -> None:
    os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
