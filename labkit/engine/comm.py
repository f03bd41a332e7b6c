"""Every collective and message of every library, recorded and, where a link is set, held back to its speed.

In: `init_process_group("labkit")`. Out: rows in the rank's recorder. `RecordingGroup` is a process group that torch
calls like any other (DDP's C++ reducer, functional collectives and batched p2p all come through); it hands each call
to gloo or NCCL and notes issue, completion and the intervals in which the caller was blocked.

Completion: what gloo's future says for collectives; for messages, which have no future on gloo, the moment the
waiting rank had it. With a link or a pace, the set completion: last arrival + latency + bytes / bandwidth, links
being serial; if gloo itself is later than that, it is noted as late, and without a pace the real time counts.

Nothing that a future's callback can reach may hold the process group: its last reference would die on a gloo thread,
whose end waits for itself ("Resource deadlock avoided").
"""

from __future__ import annotations

import contextlib
import datetime
import queue
import threading
import time
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.board import CHANNELS, Board
from labkit.engine.device import Device, sleep_until
from labkit.engine.recorder import END, LATE, UNFINISHED, Recorder, Row
from labkit.event import NONE
from labkit.link import Link, link_seconds
from labkit.mesh import Mesh

BACKEND = "labkit"

OPS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier": "barrier",
    "send": "send",
    "recv": "recv",
}
"""torch's name of each operation -> ours. Those this torch lacks are left out."""

_NO_TIMEOUT = datetime.timedelta(0)


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


_wire: Wire | None = None
"""What new process groups take: torch makes them through a function that gets no argument of ours."""

_kept: list[object] = []
"""Process groups and backends of the present or last run, kept until the next one.

Their destructors wait for gloo's threads. If DDP's reducer held the last reference, it would wait with Python's lock
held, while a thread may still need that lock to let go of a tensor: both for ever. Letting go here releases the lock.
"""


def use(wire: Wire) -> None:
    """Set what process groups made from now on record and emulate."""
    global _wire
    _wire = wire
    _kept.clear()


def keep(group: object) -> None:
    """Keep a process group or backend alive until the next run."""
    _kept.append(group)


# ---- one operation


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
    """When one operation was issued and completed; knows nothing of the process group (see the module's head)."""

    __slots__ = ("_capture", "_late_ns", "_set_end", "_waited_from", "_wire", "end_ns", "row", "start_ns")

    def __init__(self, wire: Wire, row: Row | None, start_ns: int, set_end: Callable[[], int | None] | None) -> None:
        self._wire, self.row, self.start_ns = wire, row, start_ns
        self._set_end = set_end  # the set completion in ns; can be asked once the real operation has completed
        self._capture: list[Tensor] = []
        self._waited_from = start_ns
        self._late_ns = NONE
        self.end_ns: int | None = None

    def capture(self, tensors: list[Tensor]) -> None:
        """Keep the values of `tensors` once the operation has completed."""
        self._capture = tensors

    def completed(self) -> int:
        """The real operation is complete now. Returns the time at which it counts as complete, which may be to come."""
        if self.end_ns is None:
            real_ns, paced = time.monotonic_ns(), self._wire.device.paced
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
        sleep_until(self.completed())
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
        self._waited_from = self._wire.device.now()

    def wait_ends(self) -> None:
        """The caller holds the result: let the emulated device, or the process, wait for the set completion."""
        device = self._wire.device
        if device.paced:
            device.block_until(self.completed())
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


class RecordingWork(dist.Work):
    """What the caller of an operation gets: waits for the real one, then until the set completion."""

    def __init__(
        self, inner: dist.Work, timing: Timing, keep: object, wire: Wire, link_thread: LinkThread | None = None
    ) -> None:
        super().__init__()
        self._inner, self._timing, self._keep, self._wire, self._link_thread = inner, timing, keep, wire, link_thread
        self._future: torch.futures.Future | None = None

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        timing = self._timing
        timing.wait_begins()
        ok = self._inner.wait(timeout) if timeout else self._inner.wait()
        timing.wait_ends()
        return ok

    def get_future(self) -> torch.futures.Future:
        """A future of the result that completes at the set time. DDP waits for it, and for nothing else."""
        if self._future is None:
            self._future = self._inner.get_future()
            if self._link_thread is not None:
                self._future = self._link_thread.hold(self._future, self._timing)
            self._wire.will_complete(self._timing)
        return self._future

    def is_completed(self) -> bool:
        return self._timing.end_ns is not None or self._inner.is_completed()

    def is_success(self) -> bool:
        return self._inner.is_success()

    def exception(self) -> object:
        return self._inner.exception()

    def result(self) -> object:
        return self._inner.result()

    def synchronize(self) -> bool:
        return self.wait()

    def source_rank(self) -> int:
        return self._inner._source_rank()

    _source_rank = source_rank


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


# ---- the process group


class RecordingGroup(dist.ProcessGroup):
    """A process group over gloo or NCCL that records and emulates. Made by torch, see `register`."""

    def __init__(self, store: dist.Store, rank: int, ranks: list[int], timeout: datetime.timedelta, wire: Wire) -> None:
        super().__init__(rank, len(ranks))
        self._inner = dist.ProcessGroup(store, rank, len(ranks))
        self._ranks, self._wire = ranks, wire
        self._add_backend(store, rank, timeout)
        self._channel = wire.channel(ranks)
        self._seq = 0
        self._message_seq: dict[tuple[str, int], int] = {}
        link = wire.links.get(wire.mesh.axis_of(ranks).partition("+")[0])
        self._new_lane = lambda: Lane(link, len(ranks), wire.time_scale)
        self._lane = self._new_lane()
        self._message_lanes: dict[int, Lane] = {}
        self._link_thread = LinkThread() if link is not None and not wire.device.paced else None
        self._group_code = wire.recorder.groups(ranks) if wire.recorder is not None else NONE

    def _add_backend(self, store: dist.Store, rank: int, timeout: datetime.timedelta) -> None:
        size, kind = len(self._ranks), dist.ProcessGroup.BackendType
        if self._wire.nccl:
            backend = dist.ProcessGroupNCCL(store, rank, size, dist.ProcessGroupNCCL.Options())
            device, code = torch.device("cuda"), kind.NCCL
        else:
            backend = dist.ProcessGroupGloo(store, rank, size, timeout)
            backend.options.global_ranks_in_group = self._ranks
            device, code = torch.device("cpu"), kind.GLOO
        backend._set_sequence_number_for_group()
        keep(backend)
        for group in (self, self._inner):
            group._set_default_backend(code)
            group._register_backend(device, code, backend)

    # -- torch asks for these

    def shutdown(self) -> None:
        if self._link_thread is not None:
            self._link_thread.stop()
        for device in self._inner._device_types:
            self._inner._get_backend(device).shutdown()

    def abort(self) -> None:
        self.shutdown()

    def getBackendName(self) -> str:
        return BACKEND

    def __getattr__(self, name: str) -> object:
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    # -- collectives

    def _collective(self, method: str, op: str, has_output: bool, args: tuple, kwargs: dict) -> dist.Work | None:
        wire, seq = self._wire, self._seq
        self._seq += 1
        outputs, inputs = (_tensors(args[0]), _tensors(args[1:])) if has_output else ([], _tensors(args))
        size = max(_bytes(outputs), _bytes(inputs))
        start_ns = wire.device.now()
        row = self._row(op, NONE, size, inputs or outputs, seq, start_ns)
        timing = Timing(wire, row, start_ns, self._collective_end(op, size, seq, start_ns) if wire.emulating else None)
        if row is not None and wire.recorder.value_limit_bytes and op not in ("barrier", "broadcast"):
            for tensor in inputs:
                wire.recorder.value("sync_in", tensor, start_ns)
            timing.capture(outputs or inputs)
        work = getattr(self._inner, method)(*args, **kwargs)
        if work is None:
            timing.completed()
            return None
        if op != "barrier" and getattr(args[-1], "asyncOp", True):
            _stamp_when_done(work, timing)
        return RecordingWork(work, timing, args, wire, self._link_thread)

    def _collective_end(self, op: str, size: int, seq: int, start_ns: int) -> Callable[[], int]:
        board, lane, ranks, channel = self._wire.board, self._lane, self._ranks, self._channel
        if board is not None:
            board.arrive(channel, seq, start_ns)

        def end() -> int:
            last_ns = board.last_arrival(ranks, channel, seq) if board is not None else None
            return lane.complete(start_ns if last_ns is None else last_ns, op, size)[1]

        return end

    # -- messages

    def _message(self, method: str, op: str, args: tuple, kwargs: dict) -> dist.Work:
        wire, peer = self._wire, self._ranks[args[1]]
        seq = self._message_seq.get((op, peer), 0)
        self._message_seq[op, peer] = seq + 1
        tensors = _tensors(args[0])
        size = _bytes(tensors)
        start_ns = wire.device.now()
        row = self._row(op, peer, size, tensors, seq, start_ns)
        end = self._send_end if op == "send" else self._recv_end
        timing = Timing(wire, row, start_ns, end(peer, size, seq, start_ns) if wire.emulating else None)
        return RecordingWork(getattr(self._inner, method)(*args, **kwargs), timing, args, wire)

    def _send_end(self, peer: int, size: int, seq: int, start_ns: int) -> Callable[[], int]:
        lane = self._message_lanes.get(peer)
        if lane is None:
            lane = self._message_lanes[peer] = self._new_lane()
        free_ns, there_ns = lane.complete(start_ns, "send", size)
        if self._wire.board is not None:
            self._wire.board.message_arrives(peer, self._message_key(seq), there_ns)
        return lambda: free_ns

    def _recv_end(self, peer: int, size: int, seq: int, start_ns: int) -> Callable[[], int | None] | None:
        board, key = self._wire.board, self._message_key(seq)
        return None if board is None else lambda: board.message_arrival(peer, key)

    def _message_key(self, seq: int) -> int:
        return seq * CHANNELS + self._channel % CHANNELS

    def _row(self, op: str, peer: int, size: int, tensors: list[Tensor], seq: int, start_ns: int) -> Row | None:
        recorder = self._wire.recorder
        if recorder is None:
            return None
        stage, microbatch = self._wire.tag_of(tensors[0]) if peer != NONE else (None, None)
        dtype = recorder.dtypes(str(tensors[0].dtype).removeprefix("torch.")) if tensors else NONE
        return recorder.sync(
            start_ns, op=recorder.ops(op), group=self._group_code, peer=peer, size_bytes=size, dtype=dtype, seq=seq,
            stage=stage, microbatch=microbatch,
        )  # fmt: skip


def _method(name: str, op: str) -> Callable:
    """A method that torch calls by `name`; arguments as torch passes them."""
    if op in ("send", "recv"):

        def call(self: RecordingGroup, *args: object, **kwargs: object) -> dist.Work:
            return self._message(name, op, args, kwargs)
    else:
        has_output = op not in ("barrier", "all_reduce", "broadcast", "reduce")

        def call(self: RecordingGroup, *args: object, **kwargs: object) -> dist.Work | None:
            return self._collective(name, op, has_output, args, kwargs)

    call.__name__ = name
    return call


for _name, _op in OPS.items():
    if hasattr(dist.ProcessGroup, _name):
        setattr(RecordingGroup, _name, _method(_name, _op))


def register() -> None:
    """Make `init_process_group("labkit")` give recording groups. Can be called again."""
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: object, _: object) -> RecordingGroup:
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    return RecordingGroup(options.store, options.group_rank, ranks, options.timeout, _wire)


def _stamp_when_done(work: dist.Work, timing: Timing) -> None:
    # gloo's reduce_scatter has no future: its completion is seen by whoever waits.
    with contextlib.suppress(RuntimeError):
        work.get_future().add_done_callback(lambda _: timing.completed())


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
