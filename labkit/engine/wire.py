"""When an operation between ranks counts as complete, and what that leaves in the recorder.

In: issue and real completion of each operation, as `comm` reports them. Out: rows with start, end, lateness, and the
intervals in which the rank was blocked. One `Wire` per run.

Completion is what gloo says: for collectives by its future; for messages, which have no future on gloo, the moment
the waiting rank had it. With a link or a pace it is the set completion: last arrival + latency + bytes / bandwidth,
links being serial; if gloo itself is later than that, it is noted as late, and without a pace the real time counts.

Nothing that a future's callback can reach may hold the process group: its last reference would die on a gloo thread,
whose end waits for itself ("Resource deadlock avoided").
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from labkit.board import Board
from labkit.engine.device import Device
from labkit.engine.recorder import CODE, END, FIELD, LATE, UNFINISHED, Recorder, Row
from labkit.event import NONE, Kind
from labkit.link import Link, link_seconds
from labkit.mesh import Mesh


class Wire:
    """What the process groups of one run share: what they record and emulate, and what is under way."""

    def __init__(
        self,
        mesh: Mesh,
        device: Device,
        *,
        recorder: Recorder | None = None,
        board: Board | None = None,
        links: Mapping[str, Link] | None = None,
        time_scale: float = 1.0,
        nccl: bool = False,
    ) -> None:
        self.mesh, self.device, self.recorder, self.board = mesh, device, recorder, board
        self.links, self.time_scale, self.nccl = links or {}, time_scale, nccl
        self.emulating = device.paced or bool(links)
        self.backward_end_ns = 0  # when the last backward's own work ended; what follows is waiting for buckets
        self._unfinished: list[Timing] = []
        self._tags: dict[int, tuple[int, int]] = {}
        self._channels: dict[tuple[int, ...], int] = {}

    def tag_message(self, tensor: Tensor, stage: int, microbatch: int) -> None:
        """Say which microbatch the next message with this tensor carries."""
        self._tags[tensor.data_ptr()] = (stage, microbatch)

    def tag_of(self, tensor: Tensor) -> tuple[int | None, int | None]:
        return self._tags.get(tensor.data_ptr(), (None, None))

    def channel(self, ranks: list[int]) -> int:
        """Number of a new group among the groups of the same ranks: equal on all members, since all make them."""
        key = tuple(ranks)
        self._channels[key] = self._channels.get(key, -1) + 1
        return self._channels[key]

    def will_complete(self, timing: Timing) -> None:
        """A collective whose completion nobody may wait for by hand."""
        self._unfinished.append(timing)

    def stop_recording(self) -> None:
        """Training is over: what follows (collecting weights) is no event of it."""
        self.recorder, self.emulating = None, False

    def wait_for_unfinished(self) -> None:
        """Record that the rank was blocked until the collectives that nobody waited for by hand were complete.

        DDP waits for its buckets inside `backward`, out of sight: call this when backward has returned.
        """
        unfinished, self._unfinished = self._unfinished, []
        for timing in unfinished:
            timing.waited_inside_backward()


class Lane:
    """A serial link of this rank: one group's collectives, or messages to one peer. Works off operations in order."""

    def __init__(self, link: Link | None, num_ranks: int, scale: float) -> None:
        self.link, self.num_ranks, self._scale = link, num_ranks, scale * 1e9
        self.free_ns = 0

    def complete(self, arrived_ns: int, op: str, size_bytes: int) -> tuple[int, int]:
        """(link free again, data there) in ns of an operation whose last participant arrived at `arrived_ns`."""
        if self.link is None:
            return arrived_ns, arrived_ns
        latency_s, transfer_s = link_seconds(self.link, op, size_bytes, self.num_ranks)
        self.free_ns = max(arrived_ns, self.free_ns) + int(transfer_s * self._scale)
        return self.free_ns, self.free_ns + int(latency_s * self._scale)


class Timing:
    """When one operation was issued and completed. Holds no process group, since callbacks hold it."""

    __slots__ = ("_capture", "_late_ns", "_set_end", "_waited_from", "_wire", "end_ns", "row", "start_ns")

    def __init__(self, wire: Wire, row: Row | None, start_ns: int, set_end: Callable[[], int | None] | None) -> None:
        self._wire, self.row, self.start_ns = wire, row, start_ns
        self._set_end = set_end  # the set completion in ns; can be asked once the real operation has completed
        self._capture: list[Tensor] = []
        self._waited_from = start_ns
        self._late_ns = NONE
        self.end_ns: int | None = None

    def keep_values(self, before: list[Tensor], after: list[Tensor]) -> None:
        """Where the plan asks for values: what goes into the operation now, and what comes out once it completed."""
        if self.row is not None and self._wire.recorder.value_limit_bytes:
            for tensor in before:
                self._wire.recorder.value("sync_in", tensor, self.start_ns)
            self._capture = list(after)

    def completed(self) -> int:
        """The real operation is complete now. Returns the time at which it counts as complete, which may be to come."""
        if self.end_ns is None:
            real_ns, paced = self._wire.device.real_ns(), self._wire.device.paced
            set_ns = self._set_end() if self._set_end is not None else None
            if set_ns is None:
                self.end_ns = real_ns
            else:
                self._late_ns = max(0, real_ns - max(set_ns, self._waited_from))
                self.end_ns = set_ns if paced else max(set_ns, real_ns)
            if paced or set_ns is None:
                self._write()
        return self.end_ns

    def release(self) -> None:
        """Without a pace: hold the caller until the set completion, and note when it was really let go."""
        self._wire.device.sleep_until(self.completed())
        if self.row is not None and self.row[END] == UNFINISHED:
            self.end_ns = time.monotonic_ns()
            self._write()

    def _write(self) -> None:
        if self.row is not None:
            self.row[LATE], self.row[END] = self._late_ns, max(self.end_ns, self.start_ns)
            for tensor in self._capture:
                self._wire.recorder.value("sync_out", tensor, self.end_ns)
            self._capture = []

    def wait_begins(self) -> None:
        """The caller is blocked from now on; the board says so, since a rank that waits is not the one that hangs."""
        self._waited_from = self._wire.device.now()
        if self.row is not None and self._wire.recorder is not None:
            self._wire.recorder.begin(CODE[Kind.WAIT], self._waited_from, self.row[FIELD["op"]])

    def wait_ends(self) -> None:
        """The caller holds the result: let the emulated device, or the process, wait for the set completion."""
        device = self._wire.device
        if device.paced:
            device.block_until(self.completed())
        elif self._set_end is None:
            self.completed()
        else:
            self.release()
        self._record_wait(self._waited_from, device.now())

    def waited_inside_backward(self) -> None:
        """Backward has returned, so the operation is complete; it was waited for from the end of the last layer."""
        end_ns, wire = self.completed(), self._wire
        wire.device.block_until(end_ns)
        self._record_wait(max(self.start_ns, wire.backward_end_ns), end_ns)

    def _record_wait(self, start_ns: int, end_ns: int) -> None:
        if self.row is not None:
            self._wire.recorder.wait(self.row, start_ns, end_ns)


class LinkThread:
    """Completes futures at their set time, in order. Started only for a group that emulates a link for DDP."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._run, name="labkit-link", daemon=True).start()

    def hold(self, inner: torch.futures.Future, timing: Timing) -> torch.futures.Future:
        held = torch.futures.Future()
        inner.add_done_callback(lambda done: self._queue.put((done, held, timing)))
        return held

    def stop(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            done, held, timing = item
            try:
                value = done.value()
                timing.release()
                held.set_result(value)
            except Exception as error:  # gloo's error belongs to whoever waits for the future
                held.set_exception(error)
            done = held = timing = item = None
