"""Machines to predict for: devices, links, how collectives use them. Pure; no torch, no process.

In: a preset's name, a JSON file that `labkit calibrate` wrote, or numbers. Out: a `Cluster`, which says how long a
matrix product, a pass over memory, or a collective of one mesh axis takes.

    device.py      Device: rates of one GPU or CPU
    collective.py  all-reduce as ring, tree or switch, or measured
    topology.py    Cluster: which link an axis uses; JSON files
    presets.py     known machines, each number with its source
"""

from labkit.cluster.collective import ALGORITHMS, Curve, all_reduce_s
from labkit.cluster.device import Device
from labkit.cluster.presets import PRESETS, as_cluster
from labkit.cluster.topology import Cluster, ClusterError, Group, group_of, load, save

__all__ = [
    "ALGORITHMS",
    "PRESETS",
    "Cluster",
    "ClusterError",
    "Curve",
    "Device",
    "Group",
    "all_reduce_s",
    "as_cluster",
    "group_of",
    "load",
    "save",
]
