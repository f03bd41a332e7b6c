"""A class before one machine: visitors open the explorer at once, and each runs a plan of its own.

Each is a raw session: the page from Voila, then the kernel's websocket, as the page's own script would use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
RANKS = {"dp": 2, "tp": 1, "pp": 2, "layers": 4, "microbatches": 2, "global_batch": 16, "paced": False}
NUM_RANKS = 4
PAGE_S, RUN_S = 600, 600
PROTOCOL = "v1.kernel.websocket.jupyter.org"
"""Of a message: number of offsets, offsets (64 bits each), then channel, header, parent, metadata, content, buffers."""


@dataclass
class Visit:
    """One visitor. Times in s since all came; `at_work` is when its ranks were first and last seen to finish a step."""

    steps: int
    page_s: float = 0.0
    asked_s: float = 0.0
    places: list[int] = field(default_factory=list)
    at_work: list[float] = field(default_factory=list)
    done_s: float = 0.0
    steps_done: list[int] = field(default_factory=list)
    failure: str = ""
    proof: bool = False

    @property
    def waited_s(self) -> float:
        """From Run until its own ranks had done a step."""
        return self.at_work[0] - self.asked_s if self.at_work else float("inf")

    @property
    def is_right(self) -> bool:
        """It got its own run, whole, equal to the serial one."""
        return not self.failure and self.steps_done == [self.steps] * NUM_RANKS and self.proof


@dataclass
class Figures:
    visits: list[Visit]
    seats: int
    most_processes: int = 0
    most_bytes: int = 0
    left_after_s: float | None = None


class Session:
    """A kernel's websocket, and the widgets that speak through it."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket, self._session = socket, uuid.uuid4().hex

    async def send(self, kind: str, metadata: dict | None = None, **content: object) -> None:
        header = {"msg_id": uuid.uuid4().hex, "username": "", "session": self._session, "msg_type": kind}
        parts = [
            b"shell",
            *(json.dumps(one).encode() for one in (header | {"version": "5.3"}, {}, metadata or {}, content)),
        ]
        starts = [8 * (len(parts) + 2)]
        for part in parts:
            starts.append(starts[-1] + len(part))
        await self._socket.write_message(
            struct.pack(f"<{len(starts) + 1}Q", len(starts), *starts) + b"".join(parts), True
        )

    async def receive(self) -> dict:
        raw = await self._socket.read_message()
        if raw is None:
            raise ConnectionError("the kernel's socket was closed")
        (num,) = struct.unpack("<Q", raw[:8])
        starts = struct.unpack(f"<{num}Q", raw[8 : 8 * (num + 1)])
        return {"content": json.loads(raw[starts[4] : starts[5]])}

    async def form(self) -> tuple[str, dict]:
        """Id and state of the page's form, once the page has made it."""
        control = uuid.uuid4().hex
        version = {"version": "1.0.0"}  # of the control protocol
        await self.send("comm_open", version, comm_id=control, target_name="jupyter.widget.control", data={})
        while True:
            await self.send("comm_msg", comm_id=control, data={"method": "request_states"})
            states = await self._states(control)
            for name, one in states.items():
                if "plan_text" in one["state"]:
                    return name, one["state"]
            await asyncio.sleep(1)

    async def _states(self, control: str) -> dict:
        while True:
            message = await self.receive()
            if message["content"].get("comm_id") == control and "states" in message["content"].get("data", {}):
                return message["content"]["data"]["states"]


async def _visit(url: str, visit: Visit, began: float) -> None:
    now = lambda: time.monotonic() - began  # noqa: E731
    page = await AsyncHTTPClient().fetch(
        f"{url}/voila/render/explorer.ipynb", connect_timeout=PAGE_S, request_timeout=PAGE_S
    )
    kernel = re.search(r'"kernelId": "([0-9a-f-]+)"', page.body.decode())[1]
    where = f"ws{url.removeprefix('http')}/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}"
    session = Session(await websocket_connect(where, subprotocols=[PROTOCOL], max_message_size=2**28))
    form, state = await session.form()
    visit.page_s = now()
    values = state["values"] | RANKS | {"steps": visit.steps, "seed": visit.steps}
    await session.send("comm_msg", comm_id=form, data={"method": "update", "state": {"values": values}})
    await session.send("comm_msg", comm_id=form, data={"method": "custom", "content": {"do": "run"}})
    visit.asked_s = now()
    await asyncio.wait_for(_follow(session, form, visit, now), RUN_S)
    visit.done_s = now()
    await AsyncHTTPClient().fetch(f"{url}/api/kernels/{kernel}", method="DELETE")  # as a page does that is closed


async def _follow(session: Session, form: str, visit: Visit, now) -> None:
    """Until the form is idle again; what it says on the way goes into the visit."""
    runs = False
    while True:
        message = await session.receive()
        visit.proof = visit.proof or "replicas identical" in json.dumps(message["content"])
        if message["content"].get("comm_id") != form:
            continue
        state = message["content"].get("data", {}).get("state", {})
        visit.places += [state["place"]] if state.get("place") else []
        visit.failure = state.get("failure", visit.failure)
        if state.get("steps_done"):
            visit.steps_done = state["steps_done"]
            visit.at_work = [visit.at_work[0] if visit.at_work else now(), now()]
        runs = runs or state.get("state") == "running"
        if runs and state.get("state") == "idle":
            return


async def _watch(server: psutil.Process, figures: Figures) -> None:
    """The most that the server and all below it ever held."""
    while True:
        family = [server, *server.children(recursive=True)]
        held = 0
        for process in family:
            with contextlib.suppress(psutil.Error):
                held += process.memory_full_info().uss
        figures.most_processes = max(figures.most_processes, len(family))
        figures.most_bytes = max(figures.most_bytes, held)
        await asyncio.sleep(2)


async def _all(url: str, server: psutil.Process, figures: Figures) -> None:
    AsyncHTTPClient.configure(None, max_clients=2 * len(figures.visits))
    watch, began = asyncio.create_task(_watch(server, figures)), time.monotonic()
    ends = await asyncio.gather(*(_visit(url, one, began) for one in figures.visits), return_exceptions=True)
    for visit, end in zip(figures.visits, ends, strict=True):
        visit.failure = visit.failure or (repr(end) if end is not None else "")
    watch.cancel()


def come(num_visitors: int, seats: int) -> Figures:
    """So many visitors at once before `labkit lab --seats`; their figures."""
    figures = Figures([Visit(steps=5 + number) for number in range(num_visitors)], seats)
    with tempfile.TemporaryDirectory() as line:
        command = [sys.executable, "-c", "from labkit.cli import main; main()", "lab", "--no-browser"]
        flags = ["--seats", str(seats), "--run-limit", "300s", "--idle", "5s", "--notebooks", str(NOTEBOOKS)]
        environment = {**os.environ, "TMPDIR": line}
        process = subprocess.Popen(command + flags, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://[0-9.:]+", process.stdout.readline())[0]
            server = psutil.Process(process.pid)
            asyncio.run(_all(url, server, figures))
            figures.left_after_s = _until_only_the_server_is_left(server)
        finally:
            process.terminate()
            process.wait()
    return figures


def _until_only_the_server_is_left(server: psutil.Process, within_s: float = 30.0) -> float | None:
    """Seconds until no kernel and no rank is left; None: some still are."""
    began = time.monotonic()
    while time.monotonic() - began < within_s:
        if len(server.children(recursive=True)) <= 1:  # Voila itself
            return time.monotonic() - began
        time.sleep(0.1)
    return None
