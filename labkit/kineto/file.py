"""One profiler file: from its bytes to events, with what had to be repaired.

In: a path. Out: a `ProfilerFile`. Nothing in it is evaluated; sizes are bounded; what is no profiler file is refused
with its name and the reason.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from labkit.kineto.cut import close_after_last_event
from labkit.trace import TraceError

MAX_BYTES = 8 << 30
"""Most bytes of JSON in one file."""

_MAX_RATIO, _RATIO_FROM = 400, 64 << 20
"""A .gz that unpacks to more than so many times its size, and to more than so many bytes, is no profiler's."""

_GZIP = b"\x1f\x8b"


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that are used; others are skipped unread."""

    correlation: Any = None
    size: Any = msgspec.field(name="Group size", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements_in: Any = msgspec.field(name="In msg nelems", default=None)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_about: Any = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    source: Any = msgspec.field(name="Src Rank", default=None)
    target: Any = msgspec.field(name="Dst Rank", default=None)
    rank: Any = msgspec.field(name="Rank", default=None)
    seq: Any = msgspec.field(name="Seq", default=None)


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`. Times are in us unless the file says otherwise by their size."""

    ph: str | None = None
    cat: str | None = None
    name: str | int | float | None = None
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: Args | None = None


class _Document(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents")
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    base_ns: Any = msgspec.field(name="baseTimeNanoseconds", default=None)


@dataclass(frozen=True)
class ProfilerFile:
    """What a file holds."""

    path: Path
    events: list[Event]
    distributed: dict[str, Any]
    base_ns: int  # what the profiler took off all its times
    notes: tuple[str, ...]  # repairs


def read_file(path: str | os.PathLike[str]) -> ProfilerFile:
    """Read a .json or .json.gz file of the PyTorch profiler."""
    path = Path(path)
    data, notes = _unpacked(path)
    first = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first not in (b"{", b"["):
        start = data[:20].decode("utf-8", "replace")
        raise TraceError(f"{path} is no profiler file: it starts with {start!r}, not with {{ or [ ({len(data)} bytes)")
    document, repairs = _parsed(path, data.lstrip(b"\xef\xbb\xbf"), as_list=first == b"[")
    distributed = document.distributed if isinstance(document.distributed, dict) else {}
    base_ns = document.base_ns if isinstance(document.base_ns, int) else 0
    return ProfilerFile(path, document.events, distributed, base_ns, (*notes, *repairs))


# ---- bytes


def _unpacked(path: Path) -> tuple[bytes, list[str]]:
    try:
        size = path.stat().st_size
        if size == 0:
            raise TraceError(f"{path} is empty: the profiler had not written it yet, or the copy failed")
        if size > MAX_BYTES:
            raise TraceError(
                f"{path} has {size:,} bytes, more than {MAX_BYTES:,}: profile fewer steps, or cut the file"
            )
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(
            f"cannot read {path}: {error.strerror or error}; give a profiler's .json or .json.gz"
        ) from None
    return _gunzip(path, data) if data[:2] == _GZIP else (data, [])


def _gunzip(path: Path, packed: bytes) -> tuple[bytes, list[str]]:
    """Unpack with a bound; a stream that ends early gives what is there."""
    stream, parts, size, rest = zlib.decompressobj(wbits=31), [], 0, packed
    bound = min(MAX_BYTES, max(_RATIO_FROM, _MAX_RATIO * len(packed)))
    try:
        while rest and not stream.eof:
            parts.append(stream.decompress(rest, 1 << 24))
            size, rest = size + len(parts[-1]), stream.unconsumed_tail
            if size > bound:
                raise TraceError(f"{path} unpacks to more than {bound:,} bytes from {len(packed):,}: no profiler file")
            if stream.eof and stream.unused_data[:2] == _GZIP:  # several streams one after the other
                rest, stream = stream.unused_data, zlib.decompressobj(wbits=31)
    except zlib.error as error:
        if not size:
            raise TraceError(f"{path} is a damaged .gz file: {error}; copy it again") from None
    notes = [] if stream.eof else [f"{path.name}: the .gz stream ends early; what it holds was read"]
    return b"".join(parts), notes


# ---- JSON


def _parsed(path: Path, data: bytes, *, as_list: bool) -> tuple[_Document, list[str]]:
    """The typed document; repaired where it is cut off or not quite JSON."""
    notes = [f"{path.name}: a list at top level, taken as the events"] if as_list else []
    try:
        return _decode(data, as_list), notes
    except msgspec.ValidationError as error:
        return _tolerant(path, data, as_list, notes, error)
    except msgspec.DecodeError as error:
        if "truncated" not in str(error):
            return _tolerant(path, data, as_list, notes, error)
    except RecursionError:
        raise TraceError(f"{path} is nested too deeply: no profiler file") from None
    return _cut(path, data, as_list, notes)


def _decode(data: bytes, as_list: bool) -> _Document:
    if as_list:
        return _Document(events=_LIST.decode(data))
    return _OBJECT.decode(data)


_LIST, _OBJECT = msgspec.json.Decoder(list[Event]), msgspec.json.Decoder(_Document)


def _cut(path: Path, data: bytes, as_list: bool, notes: list[str]) -> tuple[_Document, list[str]]:
    opening = re.search(rb'"traceEvents"\s*:\s*\[', data) if not as_list else re.search(rb"\[", data)
    whole = close_after_last_event(data, opening.end() - 1) if opening else None
    if whole is None:
        raise TraceError(f"{path} is cut off at byte {len(data)}, before its first complete event: write it again")
    lost = len(data) - len(whole)
    try:
        document = _decode(whole, as_list)
    except (msgspec.MsgspecError, RecursionError):
        document, more = _tolerant(path, whole, as_list, [], ValueError("unreadable after the cut"))
        notes = [*notes, *more]
    count = len(document.events)
    kept = f"all {count:,} complete events kept, the last {max(lost, 0):,} bytes dropped"
    return document, [*notes, f"{path.name}: cut off at byte {len(data):,}; {kept}"]


def _tolerant(
    path: Path, data: bytes, as_list: bool, notes: list[str], reason: Exception
) -> tuple[_Document, list[str]]:
    """Python's own parser, which takes NaN and control characters; events of a wrong form are left out."""
    try:
        found = json.loads(data.decode("utf-8", "replace"), strict=False)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path} is not JSON: {error.msg} at byte {error.pos:,}; write it again") from None
    except RecursionError:
        raise TraceError(f"{path} is nested too deeply: no profiler file") from None
    events = found if as_list else found.get("traceEvents")
    if not isinstance(events, list):
        raise TraceError(f"{path} is no profiler file: it has no list `traceEvents` ({reason})")
    kept = [event for event in map(_as_event, events) if event is not None]
    if len(kept) < len(events):
        notes = [*notes, f"{path.name}: {len(events) - len(kept):,} of {len(events):,} events of a wrong form left out"]
    head = {} if as_list else found
    return _Document(kept, head.get("distributedInfo"), head.get("baseTimeNanoseconds")), notes


def _as_event(found: Any) -> Event | None:
    try:
        return msgspec.convert(found, Event)
    except (msgspec.ValidationError, RecursionError):
        return None
