"""Text that is already on the user's machine: the source of Python's standard library.

In: nothing. Out: numpy arrays, read once per process (the preloading process reads them for all ranks).
"""

import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

TEXT_LIMIT = 400_000
"""Characters of source text that are enough for small runs; more only costs start-up time."""


@cache
def text() -> np.ndarray:
    """ASCII codes (uint8) of the standard library's own modules, in alphabetical order; other characters become "?"."""
    return np.frombuffer("".join(_modules(TEXT_LIMIT)).encode("ascii", "replace"), dtype=np.uint8)[:TEXT_LIMIT]


def _modules(limit: int) -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        source = path.read_text(encoding="utf-8", errors="replace")
        yield source
        limit -= len(source)
        if limit <= 0:
            return
