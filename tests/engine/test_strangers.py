"""A stranger before `labkit lab`: what SECURITY.md says that a visitor cannot do, tried; and how the server ends."""

import asyncio
import http.client
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import polars
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "soak"))

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect
from visitors import PROTOCOL, Session

import labkit

ROOT = Path(__file__).parents[2]
NO_KERNEL = "00000000-0000-0000-0000-000000000000"


def started(private: Path, *flags: str) -> tuple[subprocess.Popen, str]:
    """`labkit lab` with a temporary folder of its own, and its address."""
    private.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", "from labkit.cli import main; main()", "lab", "--no-browser", *flags],
        env={**os.environ, "TMPDIR": str(private)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    return process, re.search(r"http://([0-9.]+:\d+)", process.stdout.readline())[1]


def ask(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Status, and text or where it sends to. The path goes out as it is written: no client tidies it up."""
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.putrequest(method, path, skip_accept_encoding=True)
    connection.putheader("Content-Length", str(len(body or b"")))
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    return answer.status, answer.getheader("Location") or text


def ask_on(address: str, path: str) -> tuple[int, str]:
    """What a path leads to at last."""
    status, text = ask(address, "GET", path)
    return ask_on(address, text) if status == 302 else (status, text)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    process, address = started(tmp_path_factory.mktemp("lab"))
    yield address
    process.terminate()
    process.wait(60)


@pytest.fixture(scope="module")
def kernel(lab):
    """The kernel of an open page."""
    status, page = ask(lab, "GET", "/voila/render/explorer.ipynb")
    assert status == 200
    return re.search(r'"kernelId": "([0-9a-f-]+)"', page)[1]


READS = [
    "/api/kernels", "/api/sessions", "/api/kernelspecs", "/api/contents", "/api/contents/explorer.ipynb",
    "/api/contents/../pyproject.toml", "/api/terminals", "/api/me", "/api/config/notebook", "/files/explorer.ipynb",
    "/files/..%2fpyproject.toml", "/tree", "/lab", "/terminals/1", "/nbconvert/html/explorer.ipynb",
    "/view/explorer.ipynb",
    "/voila/files/explorer.ipynb", "/voila/files/..%2fpyproject.toml", "/voila/files/../pyproject.toml",
    "/voila/render/../pyproject.toml", "/voila/render/..%2fpyproject.toml", "/voila/render/%2e%2e/pyproject.toml",
    "/voila/render/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd", "/voila/render//etc/passwd", "/voila/tree/../labkit",
    "/voila/tree/..%2flabkit", "/voila/static/../../pyproject.toml", "/voila/static/..%2f..%2f..%2fetc%2fpasswd",
    "/voila/templates/labkit/../../../../pyproject.toml", "/static/..%2f..%2fetc%2fpasswd",
]  # fmt: skip


@pytest.mark.parametrize("path", READS)
def test_files_and_lists_stay_closed(lab, path):
    status, text = ask_on(lab, path)
    assert status in (403, 404, 500), f"{status}: {text[:200]}"  # 500: Voila's own, for a template of no theme
    assert "root:" not in text and "[project]" not in text and '"cells"' not in text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/kernels", b'{"name": "python3"}'),
        ("POST", "/api/sessions", b"{}"),
        ("POST", "/api/terminals", b"{}"),
        ("PUT", "/api/contents/new.ipynb", b'{"type": "file", "format": "text", "content": "x"}'),
        ("DELETE", "/api/contents/explorer.ipynb", None),
        ("POST", "/api/shutdown", b""),
        ("PUT", "/voila/render/new.ipynb", b"x"),
        ("POST", f"/api/kernels/{NO_KERNEL}/restart", b""),
    ],
)
def test_nothing_is_started_written_or_ended(lab, method, path, body):
    status, text = ask(lab, method, path, body)
    assert status in (403, 404, 405), f"{status}: {text[:200]}"
    assert not (ROOT / "notebooks" / "new.ipynb").exists() and (ROOT / "notebooks" / "explorer.ipynb").exists()


def test_it_listens_on_the_loopback_only(lab):
    port = int(lab.rpartition(":")[2])
    listening = {one.laddr.ip for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN
                 and one.laddr.port == port}  # fmt: skip
    assert listening == {"127.0.0.1"}


async def _socket(lab: str, kernel: str, **headers: str):
    where = f"ws://{lab}/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}"
    return await websocket_connect(HTTPRequest(where, headers=headers), subprotocols=[PROTOCOL])


ASKED = {
    "execute_request": {"code": "open({path!r}, 'w')", "silent": False, "store_history": True},
    "complete_request": {"code": "import o", "cursor_pos": 8},
    "inspect_request": {"code": "open", "cursor_pos": 3, "detail_level": 1},
    "history_request": {"hist_access_type": "tail", "n": 10, "output": True, "raw": True},
    "debug_request": {"type": "request", "seq": 1, "command": "debugInfo"},
    "input_reply": {"value": "x"},
}


def test_a_kernels_socket_takes_no_code(lab, kernel, tmp_path):
    """The kernel is asked all this first, and then what it does answer: the widgets' states."""
    path = tmp_path / "written"

    async def visit() -> list[str]:
        session = Session(await _socket(lab, kernel))
        await session.form()  # the page's cells are done
        for kind, content in ASKED.items():
            await session.send(
                kind, **(content | ({"code": content["code"].format(path=str(path))} if kind[0] == "e" else {}))
            )
        answers, control = [], uuid.uuid4().hex
        version = {"version": "1.0.0"}
        await session.send("comm_open", version, comm_id=control, target_name="jupyter.widget.control", data={})
        await session.send("comm_msg", comm_id=control, data={"method": "request_states"})
        while not any(control == one.get("comm_id") for one in answers):
            answers.append((await session.receive())["content"])
        return answers

    answers = asyncio.run(asyncio.wait_for(visit(), 120))
    assert not path.exists()
    told = {"matches", "found", "history", "execution_count", "payload"}
    assert [one for one in answers if told & set(one)] == []


def test_another_origins_page_gets_no_socket(lab, kernel):
    async def visit(**headers: str) -> None:
        await _socket(lab, kernel, **headers)

    with pytest.raises(HTTPClientError, match="403"):
        asyncio.run(visit(Origin="http://evil.example"))
    asyncio.run(visit(Origin=f"http://{lab}"))


def test_a_page_ends_its_own_kernel_without_a_token(lab):
    _, page = ask(lab, "GET", "/voila/render/explorer.ipynb")
    own = re.search(r'"kernelId": "([0-9a-f-]+)"', page)[1]
    assert ask(lab, "DELETE", f"/api/kernels/{own}")[0] == 204
    assert ask(lab, "DELETE", f"/api/kernels/{NO_KERNEL}")[0] == 404


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_its_end_is_that_of_kernels_and_ranks(end, tmp_path):
    process, address = started(tmp_path / "private")
    assert ask(address, "GET", "/voila/render/explorer.ipynb")[0] == 200
    server = psutil.Process(process.pid)
    _until(lambda: any("forkserver" in " ".join(one.cmdline()) for one in server.children(recursive=True)))
    family = server.children(recursive=True)
    assert len(family) >= 3  # Voila, a kernel, the server of its ranks
    process.send_signal(end)
    assert process.wait(60) == 0
    _until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family))
    assert os.listdir(tmp_path / "private") == []


def _until(true, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_saved_trace_tells_no_path_and_no_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_TEST_SECRET", "do-not-tell")
    path = labkit.run(labkit.Plan(dp=2, steps=1), verify=True).save(tmp_path / "one.parquet")
    trace = labkit.load(path)
    told = repr(trace.meta) + "".join(map(str, trace.events.select(polars.selectors.string()).unique().rows()))
    for secret in ("do-not-tell", str(ROOT), str(Path.home()), sys.prefix, str(tmp_path)):
        assert secret not in told and secret.encode() not in path.read_bytes()
