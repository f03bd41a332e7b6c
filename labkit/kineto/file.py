"""One profiler file: its spans, and what had to be repaired.

In: a path. Out: a `ProfilerFile`. Nothing in it is evaluated; sizes are bounded; what is no profiler file is refused
with its name and the reason.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from labkit.kineto.events import Args, Events
from labkit.kineto.source import pieces
from labkit.kineto.table import Spans


@dataclass(frozen=True, eq=False)
class ProfilerFile:
    """What a file holds."""

    path: Path
    spans: pl.DataFrame  # columns of table.SPANS, in the order of the file
    args: dict[int, Args]  # event -> what it says of a collective, or of the rank
    num_events: int
    distributed: dict[str, Any]
    base_ns: int  # what the profiler took off all its times
    notes: tuple[str, ...]  # repairs


def read_file(path: str | os.PathLike[str]) -> ProfilerFile:
    """Read a .json or .json.gz file of the PyTorch profiler. Raises TraceError."""
    path, notes = Path(path), []
    events = Events(path, pieces(path, notes), notes)
    spans = Spans()
    for some in events:
        spans.add(some)
    table, more = spans.table(path.name)
    distributed, base_ns = events.head.get("distributedInfo"), events.head.get("baseTimeNanoseconds")
    return ProfilerFile(
        path, table, spans.args, events.num_events, distributed if isinstance(distributed, dict) else {},
        base_ns if type(base_ns) is int and abs(base_ns) < 2**62 else 0, (*notes, *more),
    )  # fmt: skip
