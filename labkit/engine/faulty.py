"""A rank that does something wrong on purpose, as an event begins.

In: a `Fault`. Out: the real thing: a signal, an exit, an error, a sleep. The event that was about to happen stands on
the board, where the parent finds it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import time
from typing import NoReturn

import torch

from labkit.engine.recorder import CODE, Recorder
from labkit.event import NONE, Kind
from labkit.faults import Fault

_KINDS = {
    "forward": {CODE[Kind.STAGE_FORWARD]},
    "backward": {CODE[Kind.STAGE_BACKWARD], CODE[Kind.STAGE_BACKWARD_INPUT]},
    "sync": {CODE[Kind.SYNC]},
}
EXIT_CODE = 7
ROOM_BYTES = 256 * 2**20
"""What a rank that runs out of memory may still take before it does."""
_CHUNK_BYTES = 32 * 2**20


class FaultyRecorder(Recorder):
    """A recorder of a rank with a fault."""

    fault: Fault

    def begin(self, kind: int, t_ns: int, op: int = NONE) -> None:
        super().begin(kind, t_ns, op)
        fault = self.fault
        if kind not in _KINDS[fault.where] or self.step < fault.step:
            return
        if fault.what == "slow":
            time.sleep(fault.seconds)
        elif self.step == fault.step:
            strike(fault)


def strike(fault: Fault) -> None:
    """Do it. A rank comes back from "cut" alone, and then fails at its next sync."""
    print(f"labkit: {fault}", flush=True)
    if fault.what == "raise":
        raise RuntimeError(f"on purpose, at the first {fault.where} of step {fault.step}")
    if fault.what == "exit":
        os._exit(EXIT_CODE)
    if fault.what == "memory":
        run_out_of_memory()
    if fault.what == "cut":
        cut_connections()
        return
    if fault.what == "hang":
        while True:
            time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL if fault.what == "kill" else signal.SIGSTOP)


def run_out_of_memory() -> NoReturn:
    """Take memory until there is none: the system refuses more than `ROOM_BYTES` to this process, not to others."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_virtual_bytes() + ROOM_BYTES, hard))
    taken = [torch.ones(_CHUNK_BYTES, dtype=torch.uint8) for _ in range(2 * ROOM_BYTES // _CHUNK_BYTES)]
    raise MemoryError(f"{len(taken)} pieces taken, and the system does not hold to its limit")  # as on macOS


def cut_connections() -> None:
    """Close this process's connections to other ranks, as when a cable is pulled: nobody is told why."""
    import psutil

    for one in psutil.Process().net_connections("tcp"):
        if one.status == psutil.CONN_ESTABLISHED:
            with contextlib.suppress(OSError):  # gloo may have closed it by now
                with socket.socket(fileno=os.dup(one.fd)) as end:
                    end.shutdown(socket.SHUT_RDWR)


def _virtual_bytes() -> int:
    import psutil

    return psutil.Process().memory_info().vms
