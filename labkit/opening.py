"""Files of traces, whoever wrote them: one of ours, or those of PyTorch's profiler.

In: paths. Out: a Trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.trace import Trace


def open_trace(files: Sequence[Path], ranks: Sequence[int] | None = None) -> Trace:
    """The labkit trace, or the trace of the profiler files. Raises ValueError for what is neither."""
    from labkit import kineto  # commands name this function before they know whether they read a file
    from labkit.trace import load

    traces = [file for file in files if _is_parquet(file)]
    if not traces:
        return kineto.read(files, ranks=ranks)
    if len(files) > 1 or ranks:
        raise ValueError(f"{traces[0]} is a labkit trace, which holds all its ranks: give it alone and without --rank")
    return load(traces[0])


def _is_parquet(path: Path) -> bool:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: give a labkit trace (.parquet) or a profiler's .json or .json.gz")
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"
