"""The bytes of a profiler file, piece by piece, unpacked where it is a .gz.

In: a path. Out: pieces of about a MB. Sizes are bounded; the next piece is unpacked while the last one is worked on.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zlib_ng import zlib_ng

from labkit.trace import TraceError

MAX_BYTES = 8 << 30
"""Most bytes of JSON in one file."""

_MAX_RATIO, _RATIO_FROM = 400, 64 << 20
"""A .gz that unpacks to more than so many times its size, and to more than so many bytes, is no profiler's."""

_PIECE, _PACKED_PIECE = 1 << 20, 1 << 16

_GZIP = b"\x1f\x8b"


def pieces(path: Path, notes: list[str]) -> Iterator[bytes]:
    """The file's bytes in order; repairs are added to `notes`. Raises TraceError."""
    try:
        size = path.stat().st_size
        if size == 0:
            raise TraceError(f"{path} is empty: the profiler had not written it yet, or the copy failed")
        if size > MAX_BYTES:
            raise TraceError(
                f"{path} has {size:,} bytes, more than {MAX_BYTES:,}: profile fewer steps, or cut the file"
            )
        with path.open("rb") as file:
            is_packed = file.read(2) == _GZIP
    except OSError as error:
        raise TraceError(
            f"cannot read {path}: {error.strerror or error}; give a profiler's .json or .json.gz"
        ) from None
    yield from _ahead(_unpacked(path, size, notes) if is_packed else _blocks(path, _PIECE))


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(size):
            yield block


def _ahead(items: Iterator[bytes]) -> Iterator[bytes]:
    """The same items; the next one is made meanwhile in a thread."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def _unpacked(path: Path, packed_size: int, notes: list[str]) -> Iterator[bytes]:
    """Unpack with a bound; a stream that ends early gives what is there."""
    size, bound = 0, min(MAX_BYTES, max(_RATIO_FROM, _MAX_RATIO * packed_size))
    try:
        for part in _gunzip(path, notes):
            size += len(part)
            if size > bound:
                raise TraceError(f"{path} unpacks to more than {bound:,} bytes from {packed_size:,}: no profiler file")
            yield part
    except zlib_ng.error as error:
        if not size:
            raise TraceError(f"{path} is a damaged .gz file: {error}; copy it again") from None
        notes.append(f"{path.name}: the .gz stream is damaged ({error}); what comes before was read")
    if not size:
        raise TraceError(f"{path} is an empty or damaged .gz file of {packed_size:,} bytes; copy it again")


def _gunzip(path: Path, notes: list[str]) -> Iterator[bytes]:
    """One or several streams, one after the other; what follows the last one is no part of it."""
    stream = None
    for packed in _blocks(path, _PACKED_PIECE):
        while packed:
            stream = stream or zlib_ng.decompressobj(wbits=31)
            yield stream.decompress(packed, _PIECE)
            packed = stream.unconsumed_tail
            if stream.eof:
                packed, stream = stream.unused_data, None
                if packed and not packed.startswith(_GZIP):
                    return
    if stream is not None:
        yield stream.flush()
        if not stream.eof:
            notes.append(f"{path.name}: the .gz stream ends early; what it holds was read")
