"""The list of events in a profiler file's bytes, some thousands at a time, and what stands around it.

In: pieces of JSON. Out: lists of events, those with a duration as `Span`, decoded as they come, so that a file of
gigabytes needs megabytes; then `head`, what else the file says. A file that was cut off gives every complete event.
Nothing is evaluated.

    {"distributedInfo": {...}, "traceEvents": [ {...}, {...}, {...} ], "displayTimeUnit": "ms"}
    `---------------- head ----------------´   `- events, in parts -´  `--------- tail ------´
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from labkit.kineto.cut import last_event_end
from labkit.trace import TraceError

MOST_AT_ONCE = 64 << 20
"""Most bytes of one event, and of all that is no event."""

_OPENING = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_MOST_TRIES = 100
_NEAR = 1 << 16
"""Where in a piece the place between its last two events is looked for; how long the head's own words are at most."""

_MARK, _SPACE, _BESIDE = b"\xef\xbb\xbf", b" \t\r\n", b" \t\r\n,"


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


class Span(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An entry of `traceEvents` with a duration. Times are in us unless the file says otherwise by their size."""

    cat: str | None = None
    name: str | int | float | None = None
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: Args | None = None


_OTHERS = [
    msgspec.defstruct(f"Other_{phase}", [], gc=False, tag_field="ph", tag=phase) for phase in "BEiICbneSTpFstfMPNODRcVv"
]
"""Entries of other kinds (flow arrows, instants, names of threads): nobody uses them, so they are skipped unread."""

Event = functools.reduce(operator.or_, _OTHERS, Span)

_LIST = msgspec.json.Decoder(list[Event])


class Events:
    """Iterate over it for lists of events; then read `head`, all that the file says beside them, and `num_events`.

    An event of a wrong form comes as an empty one, so that events are numbered by their place in the file.
    """

    def __init__(self, path: Path, pieces: Iterator[bytes], notes: list[str]) -> None:
        self._path, self._pieces, self._notes = path, pieces, notes
        self._data = b""  # read, and not given out yet
        self._passed = 0  # bytes given out
        self._wanted = 0  # bytes of an event so long that looking for its end after every piece would take long
        self._is_over = False
        self._num_wrong = 0
        self.num_events = 0
        self.head: dict[str, Any] = {}

    def __iter__(self) -> Iterator[list[Event]]:
        head = self._up_to_list()
        while not self._is_over:
            if events := self._next_events():
                self.num_events += len(events)
                yield events
        if self._num_wrong:
            count = f"{self._num_wrong:,} of {self.num_events:,} events"
            self._note(f"{count} of a wrong form left out")
        self.head = self._around(head)

    # -- bytes

    def _note(self, said: str) -> None:
        self._notes.append(f"{self._path.name}: {said}")

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        if len(self._data) > MOST_AT_ONCE:
            raise TraceError(
                f"{self._path} has more than {MOST_AT_ONCE:,} bytes without a whole event after byte "
                f"{self._passed:,}: no profiler file"
            )
        piece = next(self._pieces, None)
        if piece is None:
            return False
        if not self._data:
            size, piece = len(piece), piece.lstrip(_SPACE)
            self._passed += size - len(piece)
        self._data += piece
        return True

    def _pass(self, size: int) -> None:
        """Go on behind so many bytes, and behind the space and the comma that follow them."""
        rest = self._data[size:].lstrip(_BESIDE)
        self._passed += len(self._data) - len(rest)
        self._data = rest

    def _up_to_list(self) -> bytes:
        """What stands before the first event; nothing where the list itself is the file."""
        while len(self._data) < _NEAR and self._more():
            pass
        if self._data.startswith(_MARK):
            self._pass(len(_MARK))
        self._pass(len(self._data) - len(self._data.lstrip(_BESIDE)))
        if self._data.startswith(b"["):
            self._note("a list at top level, taken as the events")
            self._pass(1)
            return b""
        if not self._data.startswith(b"{"):
            start = self._data[:20].decode("utf-8", "replace")
            raise TraceError(f"{self._path} is no profiler file: it starts with {start!r}, not with {{ or [")
        return self._up_to_opening()

    def _up_to_opening(self) -> bytes:
        searched, tries = 0, 0
        while tries < _MOST_TRIES:
            for found in itertools.islice(_OPENING.finditer(self._data, searched), _MOST_TRIES):
                head, tries = self._data[: found.start()], tries + 1
                if _object(head + b'"":0}') is not None:  # else it is the name of something inside another one
                    self._pass(found.end())
                    return head
            searched = max(0, len(self._data) - _NEAR)
            if not self._more():
                _whole_json(self._path, self._data, 0)
                break
        raise TraceError(f"{self._path} is no profiler file: it has no list `traceEvents`")

    # -- events

    def _next_events(self) -> list[Event]:
        """Some whole events, none where one does not end yet."""
        is_more = self._more()
        if is_more and len(self._data) < self._wanted:
            return []
        if is_more and (events := self._quickly()):
            return events
        end, closed = last_event_end(self._data)
        self._wanted = 0 if end else 2 * len(self._data)
        if closed is not None:
            return self._last_events(closed)
        events = []
        if end:
            events = self._decoded(end)
            self._pass(end)
        if not is_more:
            self._is_over = True
            self._cut_off(self.num_events + len(events))
        return events

    def _quickly(self) -> list[Event] | None:
        """What ends where an event seems to end: if that is whole JSON, it was one."""
        ends = [found.start() + 1 for found in _BETWEEN.finditer(self._data, max(0, len(self._data) - _NEAR))]
        for end in reversed(ends[-2:]):
            try:
                events = _LIST.decode(_list_of(self._data, end))
            except (msgspec.MsgspecError, RecursionError):
                continue
            self._pass(end)
            return events
        return None

    def _last_events(self, closed: int) -> list[Event]:
        """The events up to the end of the list at `closed`."""
        self._is_over = True
        if self._data[closed : closed + 1] != b"]":
            raise TraceError(f"{self._path} is not JSON: a stray }} at byte {self._passed + closed:,}; write it again")
        events = self._decoded(len(self._data[:closed].rstrip(_BESIDE)))
        self._data = self._data[closed + 1 :]
        self._passed += closed + 1
        return events

    def _decoded(self, end: int) -> list[Event]:
        """The events up to `end`, whatever their form."""
        text = _list_of(self._data, end)
        try:
            return _LIST.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            found = _whole_json(self._path, text, self._passed - 1)
        events = [_as_event(each) for each in found]
        self._num_wrong += events.count(None)
        return [event or _OTHERS[0]() for event in events]

    def _cut_off(self, num_events: int) -> None:
        size = self._passed + len(self._data)
        if not num_events:
            raise TraceError(
                f"{self._path} is cut off at byte {size:,}, before its first complete event: write it again"
            )
        kept = f"all {num_events:,} complete events kept, the last {len(self._data):,} bytes dropped"
        self._note(f"cut off at byte {size:,}; {kept}")
        self._data = b"}"

    def _around(self, head: bytes) -> dict[str, Any]:
        """What is said before and behind the events."""
        while self._more():
            pass
        if not head:
            return {}
        behind = self._data.lstrip(_SPACE)
        found = _object(head + b'"":0' + behind)
        if found is None:
            size = self._passed + len(self._data)
            self._note(f"bytes {self._passed:,} to {size:,}, after the last event, are not JSON: left out")
            found = _object(head + b'"":0}')
        return found or {}


def _list_of(data: bytes, end: int) -> bytes:
    """The JSON list of the events up to `end`. (`%` would take eight times as long.)"""
    return b"".join((b"[", memoryview(data)[:end], b"]"))


# ---- JSON as people's tools write it: with NaN, control characters and bytes that are no UTF-8


def _loads(data: bytes) -> Any:
    return json.loads(_HALF.sub(_kept, data.decode("utf-8", "replace")), strict=False)


_HALF = re.compile(r"(\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w)|\\u[dD][89a-fA-F]\w\w")
"""An escape that is half a character; in group 1 what only looks like one."""


def _kept(found: re.Match[str]) -> str:
    return found[1] or "\\ufffd"


def _object(data: bytes) -> dict[str, Any] | None:
    """The JSON object, if it is one."""
    try:
        found = _loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _whole_json(path: Path, data: bytes, at: int) -> Any:
    """What the JSON says; TraceError with the byte where it is none. `at`: the data's place in the file."""
    try:
        return _loads(data)
    except json.JSONDecodeError as error:
        byte = at + len(error.doc[: error.pos].encode())
        raise TraceError(f"{path} is not JSON: {error.msg} at byte {byte:,}; write it again") from None
    except ValueError as error:  # such as a number of thousands of digits
        raise TraceError(f"{path} holds what cannot be read after byte {max(at, 0):,}: {error}") from None
    except RecursionError:
        raise TraceError(f"{path} is nested too deeply after byte {max(at, 0):,}: no profiler file") from None


def _as_event(found: Any) -> Event | None:
    """None for what is no event."""
    if not isinstance(found, dict) or not isinstance(found.get("ph"), str | None):
        return None
    if found.get("ph") != "X":
        return _OTHERS[0]()
    try:
        return msgspec.convert(found, Span)
    except (msgspec.ValidationError, RecursionError):
        return None
