"""Every collective and message of every library, recorded and, where a link is set, held back to its speed.

In: `init_process_group("labkit")`. Out: calls to the run's `Wire`. `RecordingGroup` is a process group that torch
calls like any other (DDP's C++ reducer, functional collectives and batched p2p all come through); it hands each call
to gloo or NCCL and notes issue, completion and the intervals in which the caller was blocked.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.board import CHANNELS
from labkit.engine.recorder import Row
from labkit.engine.wire import Lane, LinkThread, Timing, Wire
from labkit.event import NONE

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


_wire: Wire | None = None
"""What new process groups take: torch makes them through a function that gets no argument of ours."""

_kept: list[object] = []
"""Process groups and backends of the present or last run, kept until the next one.

Their destructors wait for gloo's threads. If DDP's reducer held the last reference, it would wait with Python's lock
held, while a thread may still need that lock to let go of a tensor: both for ever. Letting go here releases the lock.
At the latest it happens before the interpreter ends: a gloo thread that then asks for the lock, to run a callback of
ours, is ended by force, and the process dies of it ("terminate called without an active exception").
"""
atexit.register(_kept.clear)


def use(wire: Wire) -> None:
    """Set what process groups made from now on record and emulate."""
    global _wire
    _wire = wire
    _kept.clear()


def keep(group: object) -> None:
    """Keep a process group or backend alive until the next run."""
    _kept.append(group)


class RecordingWork(dist.Work):
    """What the caller of an operation gets: waits for the real one, then until the set completion."""

    _future: torch.futures.Future | None = None
    _link_thread: LinkThread | None = None

    def __init__(self, inner: dist.Work, timing: Timing, keep: object, wire: Wire) -> None:
        super().__init__()
        self._inner, self._timing, self._keep, self._wire = inner, timing, keep, wire

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
        self._seq = seq + 1
        outputs, inputs = (_tensors(args[0]), _tensors(args[1])) if has_output else ([], _tensors(args))
        size = max(_bytes(outputs), _bytes(inputs)) if outputs else _bytes(inputs)
        start_ns = wire.device.now()
        row = self._row(op, NONE, size, inputs or outputs, seq, start_ns)
        timing = Timing(wire, row, start_ns, self._collective_end(op, size, seq, start_ns) if wire.emulating else None)
        timing.keep_values(inputs, outputs or inputs)
        work = getattr(self._inner, method)(*args, **kwargs)
        if work is None:
            timing.completed()
            return None
        if op != "barrier" and not wire.nccl and getattr(args[-1], "asyncOp", True):
            _stamp_when_done(work, timing)
        recording = RecordingWork(work, timing, args, wire)
        if self._link_thread is not None:
            recording._link_thread = self._link_thread
        return recording

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
        timing.keep_values(*((tensors, []) if op == "send" else ([], tensors)))
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
        dtype = recorder.dtype_code(tensors[0].dtype) if tensors else NONE
        return recorder.sync(
            start_ns, recorder.ops(op), self._group_code, peer, size, dtype, seq, stage=stage, microbatch=microbatch
        )


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
    # gloo's reduce_scatter has no future: its completion is seen by whoever waits. On NCCL that is the stream.
    with contextlib.suppress(RuntimeError):
        work.get_future().add_done_callback(lambda _: timing.completed())


def _tensors(value: object) -> list[Tensor]:
    """The tensors of an argument: one, a list of them, or lists in a list; of all arguments, those of the first."""
    if isinstance(value, tuple):
        value = value[0] if value else None
    if isinstance(value, list):
        if value and isinstance(value[0], list):
            return [tensor for inner in value for tensor in inner]
        return value
    return [value] if isinstance(value, Tensor) else []


def _bytes(tensors: list[Tensor]) -> int:
    if len(tensors) == 1:
        return tensors[0].numel() * tensors[0].element_size()
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
