"""Meshes of one process pool one after the other: what torch keeps of an earlier one must not reach a later one.

DTensor remembers how it cut an operation by the mesh. Two runs' meshes can be equal though their process groups are
not, and a group of the earlier run is gone: "Could not resolve the process group".
"""

import pytest

from labkit.lab import run
from labkit.plan import Plan


def losses(**degrees: int) -> list[float]:
    plan = Plan(dtype="float64", layers=4, width=32, global_batch=32, steps=2, **degrees)
    return list(run(plan).meta.losses)


def test_a_later_mesh_meets_no_group_of_an_earlier_one():
    serial = losses()
    for degrees in ({"dp": 4, "tp": 2}, {"dp": 2, "tp": 2, "pp": 2}):
        assert losses(**degrees) == pytest.approx(serial, abs=1e-12), degrees
