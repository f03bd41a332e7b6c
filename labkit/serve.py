"""Open the dashboards: a Voila server on this machine, and the browser.

In: a folder of notebooks. Out: a server that runs until interrupted.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

from labkit import leftovers
from labkit.seats import Limits, limits
from labkit.view.voila import voila_command

_FIRST_PORT = 8866
_READY_TIMEOUT_S = 60
NO_LIMITS = Limits()


def serve(
    notebooks: Path | None = None, *, port: int = 0, open_browser: bool = True, allowed: Limits = NO_LIMITS
) -> None:
    """Serve the folder's notebooks as dashboards on the loopback address until Ctrl-C.

    allowed: what all visitors' runs together, and each of them, may take.
    """
    folder = notebooks or Path(__file__).parent.parent / "notebooks"
    if not folder.is_dir():
        raise FileNotFoundError(f"no notebooks at {folder}: give their folder with --notebooks")
    environment = {**os.environ, **allowed.environment()}
    limits(environment)  # refuses what is not above 0, before anything starts
    port = _checked(port) if port else _free_port()
    url = f"http://127.0.0.1:{port}/"
    signal.signal(signal.SIGTERM, _interrupt)  # else a server ended so would leave Voila behind
    process = subprocess.Popen(voila_command(folder, port), env=environment)
    try:
        if _wait_until_ready(process, url):
            print(f"The dashboards are at {url} (Ctrl-C stops them)", flush=True)
            if open_browser:
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        code = process.wait()
        if code:
            raise RuntimeError(f"voila ended with exit code {code}; its messages are above")
    except KeyboardInterrupt:
        pass
    finally:
        process.terminate()
        process.wait()
        leftovers.clear()  # of kernels, which Voila kills


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _checked(port: int) -> int:
    if not 1 <= port <= 65535:
        raise ValueError(f"port {port}: give a number from 1 to 65535")
    if not _is_free(port):
        raise ValueError(f"port {port} is taken: give another --port, or none to find a free one")
    return port


def _free_port() -> int:
    for port in range(_FIRST_PORT, _FIRST_PORT + 100):
        if _is_free(port):
            return port
    raise OSError(f"no free port from {_FIRST_PORT} to {_FIRST_PORT + 99}: give one with --port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _wait_until_ready(process: subprocess.Popen, url: str) -> bool:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=2)
            return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(0.1)
    return False
