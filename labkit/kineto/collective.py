"""What a collective was: op, group, size, type, from what the profiler wrote beside it.

In: an event's arguments. Out: a `Collective`. Old profilers wrote none of this: then the name tells the op, and the
group is taken to be all ranks, which the importer says in a note.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from labkit.kineto.events import Args
from labkit.kineto.words import DTYPES, ELEMENT_BYTES, op_of


@dataclass(frozen=True)
class Collective:
    """One collective call as one rank saw it; None where the file does not tell."""

    op: str | None = None
    group: tuple[int, ...] | None = None
    about: str | None = None  # what the group is for, or its name
    peer: int | None = None
    size_bytes: int | None = None
    dtype: str | None = None
    seq: int | None = None


_NOTHING = Collective()


@dataclass(frozen=True)
class Groups:
    """A file's process groups (`distributedInfo`)."""

    world_size: int | None
    by_name: dict[str, tuple[tuple[int, ...], str | None]]

    @classmethod
    def of(cls, distributed: dict[str, Any]) -> Groups:
        size = distributed.get("world_size")
        found = {}
        config = distributed.get("pg_config")
        for entry in config if isinstance(config, list) else []:
            ranks = _ranks(entry.get("ranks")) if isinstance(entry, dict) else None
            if ranks:
                found[str(entry.get("pg_name"))] = (ranks, _told(entry.get("pg_desc")))
        return cls(size if isinstance(size, int) and 0 < size < 2**31 else None, found)

    @property
    def world(self) -> tuple[int, ...] | None:
        return tuple(range(self.world_size)) if self.world_size else None


def collective(args: Args | None, groups: Groups) -> Collective:
    """What the arguments of a kernel or of `record_param_comms` say."""
    if args is None or args.collective is None:
        return _NOTHING
    name = str(args.group_name) if args.group_name is not None else None
    listed, about = groups.by_name.get(name, (None, None))
    group = _ranks(args.group_ranks) or listed
    if group is None and args.size is not None and args.size == groups.world_size:
        group = groups.world
    op = op_of(str(args.collective))
    return Collective(
        op=op,
        group=group,
        about=_told(args.group_about) or about or (f"group {name}" if name else None),
        peer=_whole(args.target if op == "send" else args.source if op == "recv" else None),
        size_bytes=_size(args),
        dtype=_dtype(args.dtype),
        seq=_whole(args.seq),
    )


def _ranks(value: Any) -> tuple[int, ...] | None:
    """[0, 1] or "[0, 1]"; None for a list that was shortened ("[0, 1, ...]")."""
    if isinstance(value, str):
        return _listed(value)
    if isinstance(value, list) and value and all(isinstance(rank, int) and 0 <= rank < 2**31 for rank in value):
        return tuple(sorted(value))
    return None


@lru_cache(1000)
def _listed(text: str) -> tuple[int, ...] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _ranks(value) if isinstance(value, list) else None


def _told(value: Any) -> str | None:
    return value[:80] if isinstance(value, str) and value not in ("", "undefined") else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _size(args: Args) -> int | None:
    """Bytes of the whole tensor: the larger of what goes in and what comes out."""
    element = ELEMENT_BYTES.get(str(args.dtype).lower())
    counts = [n for n in (args.elements_in, args.elements_out) if isinstance(n, int) and 0 <= n < 2**48]
    return max(counts) * element if counts and element else None


def _dtype(value: Any) -> str | None:
    return DTYPES.get(value.lower(), value.lower()) if isinstance(value, str) and value else None
