"""A rank of the pool: waits for jobs, carries them out, and dies with its parent.

In: a pipe to the parent, a lifeline, a log file, the shared board. Out: messages (word, payload): "ready" with the
port of rank 0's store, "layers" with their names, "step" with progress and what was recorded, "done" with the
Outcome, "error" with a traceback, before it "part" with what was recorded last.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from multiprocessing import forkserver
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

from labkit.board import Board
from labkit.engine.worker import carry_out
from labkit.job import Job
from labkit.part import Part, encode_part

_PR_SET_PDEATHSIG = 1
_GIL_SECONDS = 1e-4  # completion stamps are taken by gloo's threads, which else wait up to 5 ms for the interpreter


def live(rank: int, num_ranks: int, pipe: Connection, lifeline: Connection, log_fd: int, board_fd: int) -> None:
    """Serve jobs until the parent closes the pipe."""
    _die_with_parent(lifeline)
    _log_to(log_fd)
    torch.set_num_threads(1)
    sys.setswitchinterval(_GIL_SECONDS)
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    pipe.send(("ready", store.port if store else None))
    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        if store is None:
            store = dist.TCPStore("127.0.0.1", job.store_port, is_master=False)
        _serve(job, rank, num_ranks, pipe, dist.PrefixStore(f"run{job.run}", store), board_fd)


class _Reports:
    """Tells the parent how far this rank is."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def begins(self, layers: tuple[str, ...]) -> None:
        self._pipe.send(("layers", layers))

    def joined(self) -> None: ...

    def fails(self, part: Part | None) -> None:
        if part is not None:
            self._pipe.send(("part", encode_part(part)))

    def step_done(self, steps: int, part: Part | None) -> None:
        self._pipe.send(("step", (steps, encode_part(part) if part is not None else b"")))


def _serve(job: Job, rank: int, num_ranks: int, pipe: Connection, store: dist.Store, board_fd: int) -> None:
    board = Board(board_fd, num_ranks, rank=rank, run=job.run)
    try:
        pipe.send(("done", carry_out(job, rank, store, board, _Reports(pipe))))
        gc.collect()  # models, meshes and their process groups refer to each other in circles
    except BaseException as error:  # whatever a user's layer throws; the parent then kills all ranks
        pipe.send(("error", (_in_short(error), traceback.format_exc())))
        threading.Event().wait()


def _in_short(error: BaseException) -> str:
    """The error that began it, in one line: libraries wrap a layer's error in their own."""
    while error.__cause__ is not None:
        error = error.__cause__
    return "".join(traceback.format_exception_only(error)).strip()


def _die_with_parent(lifeline: Connection) -> None:
    """Leave nothing behind if the parent is killed: by the kernel's signal, and by the lifeline's end of file.

    Either alone misses cases: the signal follows the forkserver, which lives on while any rank holds its keep-alive
    pipe; the lifeline needs this process to run.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts the whole process group
    with contextlib.suppress(Exception):
        os.close(forkserver._forkserver._forkserver_alive_fd)
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            lifeline.recv_bytes()
        os._exit(1)

    threading.Thread(target=watch, name="labkit-lifeline", daemon=True).start()


def _log_to(log_fd: int) -> None:
    """Everything printed goes to the parent's log of this rank; SIGUSR1 adds the Python line it is at."""
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=False)
