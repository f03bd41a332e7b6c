"""Real data that is already on the user's machine: digit images of scikit-learn, source text of Python.

In: nothing. Out: numpy arrays, read once per process (the preloading process reads them for all ranks).
"""

import gzip
import importlib.util
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

TEXT_LIMIT = 400_000
"""Characters of source text that are enough for small runs; more only costs start-up time."""


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """(images, labels): float32 (1797, 64) with pixels 0 to 1, int64 (1797,).

    Reads scikit-learn's own file without importing scikit-learn, whose import takes a second in every rank.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the digits task reads scikit-learn's images: pip install scikit-learn")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return table[:, :64] / 16, table[:, 64].astype(np.int64)


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
