"""A trace as PyTorch profiler files, one for each rank, which HolisticTraceAnalysis and `labkit import` read.

In: a `Trace`. Out: a folder of rank0.json.gz, rank1.json.gz ... shaped as the profiler writes them for NCCL on GPUs.

Such readers count kernels only. So a rank's work and syncs stand in the file as kernels (`kernels` says which), each
with the launch that ties it to its step, and the head of the file says so. An empty step closes the file, because
readers leave out the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from labkit.event import Kind
from labkit.formats.kernels import Process, processes
from labkit.formats.target import whole_file
from labkit.kineto.words import DTYPES, ELEMENT_BYTES
from labkit.trace import SOURCES, Trace

_PID_OF_RANK = 1000
_THREAD, _STREAM, _SYNC_STREAM = 1, 7, 20
_FIRST_CORRELATION = 1 << 16  # HolisticTraceAnalysis keeps row numbers in a column as wide as these numbers need
_TYPES = {ours: theirs.capitalize() for theirs, ours in DTYPES.items()}


def write_profiler_folder(trace: Trace, folder: Path) -> list[Path]:
    """Write a file for each rank that has events into a new or empty folder."""
    folder.mkdir(exist_ok=True)
    return [_write_rank(trace, process, folder) for process in processes(trace)]


def _write_rank(trace: Trace, process: Process, folder: Path) -> Path:
    path = folder / f"rank{process.rank}.json.gz"
    with whole_file(path) as file:
        head = json.dumps(_head(trace, process.rank))  # readers look for '"rank": 0', with the space
        file.write(f'{head[:-1]}, "traceEvents": [\n'.encode())
        file.write(b",\n".join(map(_ENCODER.encode, _events(trace, process))))
        file.write(b"\n]}\n")
    return path


_ENCODER = msgspec.json.Encoder()


def _head(trace: Trace, rank: int) -> dict[str, Any]:
    source = trace.meta.source
    return {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": trace.meta.num_ranks},
        "schemaVersion": 1,
        "labkit": {
            "what": trace.title,
            "times": f"{source}: {SOURCES[source]}",
            "kernels": "written by labkit: work and syncs of the trace, in the form of GPU kernels",
            "notes": list(trace.meta.notes),
        },
    }


def _events(trace: Trace, process: Process) -> Iterator[dict[str, Any]]:
    pid = _PID_OF_RANK + process.rank
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"rank {process.rank}"}}
    yield {"ph": "M", "name": "process_name", "pid": process.rank, "args": {"name": f"kernels of rank {process.rank}"}}
    for step, start_ns, end_ns in process.steps.iter_rows():
        place = {"pid": pid, "tid": _THREAD}
        yield _span(f"ProfilerStep#{step}", "user_annotation", start_ns, end_ns) | place
    for number, kernel in enumerate(process.kernels.iter_rows(named=True), _FIRST_CORRELATION):
        if kernel["launch_ns"] is not None:
            launch = _span("cudaLaunchKernel", "cuda_runtime", kernel["launch_ns"], kernel["launch_ns"])
            yield launch | {"pid": pid, "tid": _THREAD, "args": {"correlation": number}}
        yield _kernel(kernel, number, process.rank)


def _kernel(kernel: dict[str, Any], correlation: int, rank: int) -> dict[str, Any]:
    is_sync = kernel["kind"] == str(Kind.SYNC)
    stream = _SYNC_STREAM if is_sync else _STREAM
    args = {"device": rank, "stream": stream, "correlation": correlation}
    if is_sync:
        args |= _sync_args(kernel, rank)
    is_copy = kernel["op"] in ("memcpy", "memset") and not is_sync
    cat = f"gpu_{kernel['op']}" if is_copy else "kernel"
    span = _span(kernel["name"], cat, kernel["start_ns"], kernel["end_ns"])
    return span | {"pid": rank, "tid": stream, "args": args}


def _sync_args(kernel: dict[str, Any], rank: int) -> dict[str, Any]:
    """What NCCL's own kernels carry."""
    element = ELEMENT_BYTES.get(kernel["dtype"] or "")
    count = kernel["size_bytes"] // element if element and kernel["size_bytes"] is not None else None
    args = {
        "Collective name": kernel["op"],
        "dtype": _TYPES.get(kernel["dtype"], kernel["dtype"]),
        "In msg nelems": count,
        "Out msg nelems": count,
        "Group size": len(kernel["group"]) if kernel["group"] is not None else None,
        "Process Group Description": kernel["axis"],
        "Process Group Ranks": json.dumps(kernel["group"]) if kernel["group"] is not None else None,
        "Seq": kernel["seq"],
        "Src Rank": kernel["peer"] if kernel["op"] == "recv" else None,
        "Dst Rank": kernel["peer"] if kernel["op"] == "send" else None,
        "Rank": rank,
    }
    return {name: value for name, value in args.items() if value is not None}


def _span(name: str, cat: str, start_ns: int, end_ns: int) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": _us(start_ns), "dur": _us(end_ns - start_ns)}


def _us(ns: int) -> int | float:
    """Whole us as a whole number: readers round numbers with a fraction, and only those."""
    return ns // 1000 if ns % 1000 == 0 else ns / 1000
