"""The digit images that the `digits` tasks train on: real data that is already on the user's machine.

In: nothing. Out: numpy arrays, read once per process. The engine trains on them, pictures show them.
"""

import gzip
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np

SIDE = 8
"""Pixels of a side of an image."""


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """(images, labels): float32 (1797, 64) with pixels 0 to 1, int64 (1797,).

    Reads scikit-learn's own file without importing scikit-learn, whose import takes a second in every process.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the digits task reads scikit-learn's images: pip install scikit-learn")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return table[:, :64] / 16, table[:, 64].astype(np.int64)
