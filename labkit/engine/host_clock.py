"""Measures a host's clock against rank 0's, over the store that all ranks share.

In: the store of the process group. Out: a `ClockReading` on the first rank of every host but rank 0's. Rank 0 answers
the hosts one after the other, so that round trips do not disturb each other.
"""

from __future__ import annotations

import datetime
import os
import socket
import time

import torch.distributed as dist

from labkit.hosts import ClockReading, read_clock

ROUND_TRIPS = 30
TIMEOUT = datetime.timedelta(seconds=60)


def node_name() -> str:
    """Names the host: its hostname and, under torchrun, its number, as two hosts may bear one name."""
    return ":".join(filter(None, [socket.gethostname(), os.environ.get("GROUP_RANK", "")]))


class HostClock:
    """This rank's part in comparing clocks. All ranks call `read` together."""

    def __init__(self, store: dist.Store, rank: int, num_ranks: int) -> None:
        self._store = dist.PrefixStore("labkit-clock", store)
        self._store.set_timeout(TIMEOUT)
        self._rank, self._times_read = rank, 0
        self._store.set(f"node/{rank}", node_name())
        nodes = [self._store.get(f"node/{other}").decode() for other in range(num_ranks)]
        self._leaders = sorted({nodes.index(node) for node in nodes} - {0})

    def read(self) -> list[ClockReading]:
        """Compare clocks now. One reading on the first rank of each other host, none elsewhere."""
        place = f"read/{self._times_read}"
        self._times_read += 1
        if self._rank == 0:
            for leader in self._leaders:
                self._answer(f"{place}/{leader}")
        return [self._ask(f"{place}/{self._rank}")] if self._rank in self._leaders else []

    def _ask(self, place: str) -> ClockReading:
        trips = []
        self._store.get(f"{place}/ready")
        for trip in range(ROUND_TRIPS):
            asked_ns = time.monotonic_ns()
            self._store.set(f"{place}/ask/{trip}", "")
            there_ns = int(self._store.get(f"{place}/answer/{trip}"))
            trips.append((asked_ns, there_ns, time.monotonic_ns()))
        return read_clock(trips)

    def _answer(self, place: str) -> None:
        self._store.set(f"{place}/ready", "")
        for trip in range(ROUND_TRIPS):
            self._store.get(f"{place}/ask/{trip}")
            self._store.set(f"{place}/answer/{trip}", str(time.monotonic_ns()))
