"""A rank's process as its parent sees it: what connects them, what it printed, and how it fares.

In: a process that `launch` started. Out: the end of its log, the line it is at, its state and its memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

_LOG_BYTES, _LOG_TAIL, _STACK_LINES = 32_000, 2000, 15
_STACK = "(most recent call first):"  # how faulthandler begins a dump


@dataclass
class Rank:
    """A process of the pool and the parent's ends of what connects them."""

    process: BaseProcess
    pipe: Connection
    lifeline: Connection
    log: Any  # an unnamed temporary file

    def read_log(self) -> str:
        """The end of what it printed; of a stack dump its first lines, which are where the rank is."""
        size = os.fstat(self.log.fileno()).st_size
        text = os.pread(self.log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace").strip()
        printed, dump, stack = text.rpartition(_STACK)
        if not dump:
            return text[-_LOG_TAIL:]
        return (printed[-_LOG_TAIL:] + dump + "\n".join(stack.splitlines()[:_STACK_LINES])).strip()

    def log_tail(self) -> str:
        """The end of its log as the end of a message; empty where it printed nothing."""
        log = self.read_log()
        return f"\nIts last output:\n{log}" if log else ""

    def ask_where(self) -> None:
        """Have it log the Python line that it is at, as soon as it can."""
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(self.process.pid, signal.SIGUSR1)

    def where(self) -> str:
        """The Python line that it said it is at, in short."""
        _, dump, stack = self.read_log().rpartition(_STACK)
        found = re.search(r'File ".*?([^/"]+)", line (\d+) in (\S+)', stack) if dump else None
        return f", at {found[1]}:{found[2]} in {found[3]}" if found else ""

    def exit_words(self) -> str:
        """How it ended."""
        code = self.process.exitcode
        if code is None:
            return "it closed its pipe"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def private_bytes(self) -> int:
        """Memory that only it holds."""
        try:
            return psutil.Process(self.process.pid).memory_full_info().uss
        except psutil.Error:
            return 0

    def state(self) -> str:
        """As the system calls it: sleeping, running, stopped ..."""
        try:
            return psutil.Process(self.process.pid).status()
        except psutil.Error:
            return "gone"

    @property
    def is_stopped(self) -> bool:
        return self.state() == psutil.STATUS_STOPPED
