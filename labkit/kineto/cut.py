"""A JSON file that ends in the middle (the job was killed): everything up to its last complete event.

In: bytes. Out: bytes that are whole JSON. One pass of array arithmetic; nothing is parsed.

    {"traceEvents": [{"a": {"b": 1}}, {"c": 2}, {"d":      becomes      {"traceEvents": [{"a": {"b": 1}}, {"c": 2}]}
"""

from __future__ import annotations

import re

import numpy as np

_CHUNK = 1 << 24
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _BACKSLASH, _OPEN, _CLOSE = ord('"'), ord("\\"), b"{[", b"}]"


def close_after_last_event(data: bytes, begin: int) -> bytes | None:
    """`data` cut after its last complete event and closed; None if no event is complete.

    `begin` is where the list of events opens; inside of it an object that ends at the list's own depth is an event.
    """
    end = _last_event_end(data, begin)
    if end is None:
        return None
    closing = b"]}" if data.lstrip()[:1] == b"{" else b"]"
    return data[:end] + closing


def _last_event_end(data: bytes, begin: int) -> int | None:
    """Position after the last `}` that brings the depth back to 1, counted from the list's own `[`."""
    depth, in_string, found, position = 0, False, None, begin
    while position < len(data):
        chunk = data[position : position + _CHUNK]
        if _odd_backslashes(chunk) and position + _CHUNK < len(data):
            chunk = chunk[:-1]
        depths, outside, in_string = _depths(chunk, depth, in_string)
        ends = np.flatnonzero(outside & (depths == 1) & (np.frombuffer(chunk, np.uint8) == _CLOSE[0]))
        closed = np.flatnonzero(depths <= 0)
        ends = ends[ends < closed[0]] if len(closed) else ends
        if len(ends):
            found = position + int(ends[-1]) + 1
        if len(closed):
            break
        depth, position = int(depths[-1]), position + len(chunk)
    return found


def _odd_backslashes(chunk: bytes) -> bool:
    """Whether the chunk ends within an escape, so that its last byte belongs to the next one."""
    return (len(chunk) - len(chunk.rstrip(b"\\"))) % 2 == 1 and len(chunk) > 1


def _depths(chunk: bytes, depth: int, in_string: bool) -> tuple[np.ndarray, np.ndarray, bool]:
    """Depth of brackets after each byte, which bytes are outside strings, and whether the chunk ends inside one."""
    if b"\\" in chunk:
        chunk = _ESCAPE.sub(b"__", chunk)
    letters = np.frombuffer(chunk, np.uint8)
    quoted = (np.cumsum(letters == _QUOTE) + in_string) % 2 == 1
    outside = ~quoted
    steps = np.zeros(len(letters), np.int8)
    for letter in _OPEN:
        steps[outside & (letters == letter)] = 1
    for letter in _CLOSE:
        steps[outside & (letters == letter)] = -1
    return depth + np.cumsum(steps, dtype=np.int32), outside, bool(quoted[-1])
