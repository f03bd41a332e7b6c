"""Shared memory in which the ranks of one host tell each other when they arrived, and the parent what they do.

In: a file descriptor that all ranks of a host hold. Out: arrival times of collectives and messages (an emulated link
needs the *last* arrival, or a straggler would be charged twice), and each rank's present activity, readable even when
the rank is stuck or gone. Every word has one writer.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

_SLOTS = 1024  # operations of one group that may be under way before the oldest arrival is overwritten
CHANNELS = 8  # process groups of one rank
_WORDS_ACTIVITY = 8
_RUN_BITS = 36  # slot keys are run * 2**36 + sequence number, so that a slot of an earlier run never matches


@dataclass(frozen=True)
class Activity:
    """What a rank was doing last. `count` grows with every event."""

    count: int
    kind: int
    step: int
    microbatch: int
    layer: int
    op: int
    since_ns: int


def board_bytes(num_ranks: int) -> int:
    """Size of the shared file for so many ranks."""
    return 8 * num_ranks * (_WORDS_ACTIVITY + 2 * _SLOTS * (CHANNELS + num_ranks))


def _reserve(fd: int, size: int) -> None:
    """Room for the file. Where the disk is full this is OSError; writing to a mapped hole would be a fatal signal."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:
        os.ftruncate(fd, size)


class Board:
    """A view of the shared file. Times in ns of the host's monotonic clock."""

    def __init__(self, fd: int, num_ranks: int, *, rank: int = 0, run: int = 0) -> None:
        size = board_bytes(num_ranks)
        if os.fstat(fd).st_size < size:
            _reserve(fd, size)
        self._map = mmap.mmap(fd, size)
        self._words = memoryview(self._map).cast("q")
        self.num_ranks = num_ranks
        self._run_key = run << _RUN_BITS
        self._here = rank * _WORDS_ACTIVITY
        self._count = 0
        self.rank = rank

    # -- activity: written by the rank, read by the parent

    def doing(self, kind: int, step: int, microbatch: int, layer: int, op: int, t_ns: int) -> None:
        words, i = self._words, self._here
        self._count += 1
        words[i] = self._count
        words[i + 1] = kind
        words[i + 2] = step
        words[i + 3] = microbatch
        words[i + 4] = layer
        words[i + 5] = op
        words[i + 6] = t_ns

    def tick(self) -> None:
        """A sign of life of a rank that sleeps on purpose."""
        self._count += 1
        self._words[self._here] = self._count

    def reset(self) -> None:
        """Forget what the ranks did in an earlier run. Called by the parent before a run."""
        for i in range(self.num_ranks * _WORDS_ACTIVITY):
            self._words[i] = 0

    def activity(self, rank: int) -> Activity:
        i = rank * _WORDS_ACTIVITY
        return Activity(*self._words[i : i + 7])

    # -- arrivals: written by each participant before it hands the operation to gloo

    def arrive(self, channel: int, seq: int, t_ns: int) -> None:
        self._write(self._collective_slot(self.rank, channel, seq), seq, t_ns)

    def last_arrival(self, ranks: list[int], channel: int, seq: int) -> int | None:
        """When the last of `ranks` arrived; None if a slot was already reused."""
        times = [self._read(self._collective_slot(rank, channel, seq), seq) for rank in ranks]
        return None if None in times else max(times)

    def message_arrives(self, dst: int, seq: int, t_ns: int) -> None:
        self._write(self._message_slot(self.rank, dst, seq), seq, t_ns)

    def message_arrival(self, src: int, seq: int) -> int | None:
        return self._read(self._message_slot(src, self.rank, seq), seq)

    def _collective_slot(self, rank: int, channel: int, seq: int) -> int:
        base = self.num_ranks * _WORDS_ACTIVITY
        return base + 2 * ((rank * CHANNELS + channel % CHANNELS) * _SLOTS + seq % _SLOTS)

    def _message_slot(self, src: int, dst: int, seq: int) -> int:
        base = self.num_ranks * (_WORDS_ACTIVITY + 2 * _SLOTS * CHANNELS)
        return base + 2 * ((src * self.num_ranks + dst) * _SLOTS + seq % _SLOTS)

    def _write(self, slot: int, seq: int, t_ns: int) -> None:
        self._words[slot + 1] = t_ns
        self._words[slot] = self._run_key + seq + 1

    def _read(self, slot: int, seq: int) -> int | None:
        return self._words[slot + 1] if self._words[slot] == self._run_key + seq + 1 else None

    def close(self) -> None:
        self._words.release()
        self._map.close()
