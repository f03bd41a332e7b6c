"""Where the last complete event of a list ends, in text that may stop anywhere, for what no parser takes.

In: bytes. Out: positions. One pass of array arithmetic; nothing is parsed.

    {"a": {"b": 1}}, {"c": 2}, {"d":
                            ^ the last event ends here
"""

from __future__ import annotations

import re

import numpy as np

_CHUNK = 1 << 22
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _END = ord('"'), ord("}")

_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")], _STEP[list(b"}]")] = 1, -1
_IS_MARK = _STEP != 0
_IS_MARK[_QUOTE] = True


def last_event_end(data: bytes) -> tuple[int | None, int | None]:
    """(position after the last event's `}`, position of the bracket that closes the list); None where there is none.

    `data` begins inside the list, between two events.
    """
    depth, in_string, found, position = 0, False, None, 0
    while position < len(data):
        chunk = data[position : position + _CHUNK]
        if _odd_backslashes(chunk) and position + _CHUNK < len(data):
            chunk = chunk[:-1]
        at, marks, depths, in_string = _depths(chunk, depth, in_string)
        closed = np.flatnonzero(depths < 0)
        ends = np.flatnonzero((depths == 0) & (marks == _END))
        ends = ends[ends < closed[0]] if len(closed) else ends
        if len(ends):
            found = position + int(at[ends[-1]]) + 1
        if len(closed):
            return found, position + int(at[closed[0]])
        depth, position = int(depths[-1]) if len(depths) else depth, position + len(chunk)
    return found, None


def _odd_backslashes(chunk: bytes) -> bool:
    """Whether the chunk ends within an escape, so that its last byte belongs to the next one."""
    return (len(chunk) - len(chunk.rstrip(b"\\"))) % 2 == 1 and len(chunk) > 1


def _depths(chunk: bytes, depth: int, in_string: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Brackets outside strings: where, which, the depth after each; and whether the chunk ends inside a string."""
    if b"\\" in chunk:
        chunk = _ESCAPE.sub(b"__", chunk)
    letters = np.frombuffer(chunk, np.uint8)
    at = np.flatnonzero(_IS_MARK[letters])
    marks = letters[at]
    quoted = (np.cumsum(marks == _QUOTE) + in_string) % 2 == 1
    outside = ~quoted & (marks != _QUOTE)
    depths = depth + np.cumsum(_STEP[marks[outside]], dtype=np.int64)
    return at[outside], marks[outside], depths, bool(quoted[-1]) if len(quoted) else in_string
