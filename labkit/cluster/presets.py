"""Known machines, each number with its source.

In: a name such as "a100". Out: a Cluster. Four kinds of source: a data sheet's rate; a fit to handed measurements
(which, is said); an assumption carried over from the A100; a round figure. None was fitted to Narayanan 2021, Table 1,
or Korthikanti 2022, Table 5, which the scorecard holds against the a100 preset.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

from labkit.cluster.collective import Curve
from labkit.cluster.device import Device
from labkit.cluster.topology import Cluster, ClusterError, load
from labkit.link import PRESETS as LINKS
from labkit.link import Link

_FIT = (
    "fitted on A100 by labkit.predict.fit, six constants at once (matmul_efficiency, half_depth, forward_stretch, "
    "backward_stretch, launch_s, message_overhead_s), to two handed sources with equal weight: forward, backward and "
    "weight times of Zero Bubble (arXiv 2401.10241), Table 9, two models (left: 0.1% to 3.9% off), and a tenth of "
    "vTrain's single-node iterations (left: 8.2% mean; fitted to either half of them, the other half is 8.4% off)"
)
_LIKE_A100 = "carried over from the A100, not measured"
_LINE_SHARE = "assumed: collectives and messages reach 85 % of the line rate"

A100_DEVICE = Device(
    name="A100-80GB",
    peak_flops_s={"float16": 312e12, "bfloat16": 312e12, "float32": 19.5e12, "float64": 9.7e12},
    matmul_efficiency=0.9190,
    half_depth=177.8,
    num_units=108,
    memory_bytes=80e9,
    memory_bandwidth_bytes_s=2039e9,
    memory_efficiency=0.85,
    forward_stretch=1.973,
    backward_stretch=1.172,
    launch_s=38.48e-6,
    sources={
        "peak_flops_s": "NVIDIA A100 data sheet, dense tensor cores (float32: no TF32)",
        "num_units": "NVIDIA A100 white paper: 108 streaming multiprocessors",
        "memory_bytes": "NVIDIA A100 80 GB data sheet",
        "memory_bandwidth_bytes_s": "NVIDIA A100 80 GB SXM data sheet",
        "matmul_efficiency": _FIT,
        "half_depth": _FIT,
        "memory_efficiency": "a round figure for streaming kernels",
        "forward_stretch": _FIT,
        "backward_stretch": _FIT,
        "launch_s": _FIT,
    },
)


def _curve(floor_us: float, sizes_mib: tuple[int, ...], times_us: tuple[float, ...]) -> Curve:
    source = "16 points fitted to the handed nccl-tests sweep on A100 NVLink; below 1 MiB an assumed floor"
    sizes = tuple(float(size * 2**20) for size in sizes_mib)
    return Curve(floor_us * 1e-6, sizes, tuple(time * 1e-6 for time in times_us), source)


# fmt: off
A100_ALL_REDUCE = {
    2: _curve(
        20,
        (
            1, 2, 3, 4, 5, 6, 7, 8,
            43, 92, 102, 220, 306, 591, 822, 1024,
        ),
        (
            44.2, 53.4, 56.3, 61.2, 69.9, 72.7, 84.2, 86.8,
            292.4, 557.1, 622.0, 1266.8, 1734.1, 3248.2, 4437.2, 5460.4,
        ),
    ),
    4: _curve(
        25,
        (
            1, 2, 4, 5, 6, 9, 10, 12,
            13, 20, 28, 31, 102, 425, 822, 1024,
        ),
        (
            51.4, 55.4, 76.6, 84.0, 104.3, 121.2, 132.0, 138.4,
            164.5, 198.2, 267.3, 280.1, 825.3, 3127.5, 5878.1, 7267.1,
        ),
    ),
    8: _curve(
        40,
        (
            1, 5, 11, 20, 31, 43, 53, 66,
            74, 82, 158, 274, 591, 660, 822, 1024,
        ),
        (
            92.1, 96.4, 168.3, 268.0, 350.3, 404.7, 536.1, 586.5,
            701.1, 738.3, 1399.2, 2345.9, 4796.9, 5330.3, 6658.1, 8193.3,
        ),
    ),
}
# fmt: on
"""All-reduce within a node of A100s by number of ranks; `labkit.predict.fit` finds the same points."""

_A100 = Cluster(
    name="a100",
    device=A100_DEVICE,
    gpus_per_node=8,
    within=LINKS["nvlink3"],
    between=LINKS["ib200"],
    all_reduce_curves=A100_ALL_REDUCE,
    within_efficiency=0.85,
    between_efficiency=0.85,
    message_overhead_s=0.7812e-3,
    sources={
        "message_overhead_s": _FIT,
        "within": LINKS["nvlink3"].source,
        "between": "one 200 Gb/s InfiniBand port per GPU, 8 per node (Narayanan et al. 2021, section 5)",
        "within_efficiency": _LINE_SHARE,
        "between_efficiency": _LINE_SHARE,
    },
)

_H100_DEVICE = Device(
    name="H100-80GB",
    peak_flops_s={"float16": 989e12, "bfloat16": 989e12, "float32": 67e12, "float64": 34e12},
    matmul_efficiency=A100_DEVICE.matmul_efficiency,
    half_depth=A100_DEVICE.half_depth,
    num_units=132,
    memory_bytes=80e9,
    memory_bandwidth_bytes_s=3350e9,
    memory_efficiency=A100_DEVICE.memory_efficiency,
    forward_stretch=A100_DEVICE.forward_stretch,
    backward_stretch=A100_DEVICE.backward_stretch,
    launch_s=A100_DEVICE.launch_s,
    sources={
        "peak_flops_s": "NVIDIA H100 SXM data sheet, dense",
        "num_units": "NVIDIA H100 white paper: 132 streaming multiprocessors (SXM5)",
        "memory_bytes": "NVIDIA H100 SXM data sheet",
        "memory_bandwidth_bytes_s": "NVIDIA H100 SXM data sheet",
        "matmul_efficiency": _LIKE_A100,
        "half_depth": _LIKE_A100,
        "memory_efficiency": _LIKE_A100,
        "forward_stretch": _LIKE_A100,
        "backward_stretch": _LIKE_A100,
        "launch_s": _LIKE_A100,
    },
)

_H100 = Cluster(
    name="h100",
    device=_H100_DEVICE,
    gpus_per_node=8,
    within=LINKS["nvlink4"],
    between=Link(5e-6, 50e9, "ib400", "400 Gb/s InfiniBand NDR: 50 GB/s a direction"),
    algorithm="nvswitch",
    within_efficiency=0.69,
    between_efficiency=0.85,
    message_overhead_s=_A100.message_overhead_s,
    sources={
        "message_overhead_s": _LIKE_A100,
        "within": LINKS["nvlink4"].source,
        "between": "NVIDIA DGX H100 data sheet: one 400 Gb/s port per GPU",
        "within_efficiency": "bus bandwidth 482 GB/s of 8 x H200 with in-network reduction: 482 = 2 (7/9) 450 x 0.69",
        "between_efficiency": _LINE_SHARE,
    },
)

_GH200 = Cluster(
    name="gh200",
    device=replace(
        _H100_DEVICE,
        name="GH200",
        memory_bytes=96e9,
        memory_bandwidth_bytes_s=4000e9,
        cpu_memory_bytes=480e9,
        cpu_link=Link(
            2e-6, 450e9, "nvlink_c2c", "NVIDIA GH200 data sheet: NVLink-C2C 900 GB/s both directions together"
        ),
        sources=_H100_DEVICE.sources
        | {
            "memory_bytes": "NVIDIA GH200 data sheet, HBM3 variant",
            "memory_bandwidth_bytes_s": "NVIDIA GH200 data sheet, HBM3 variant",
            "cpu_memory_bytes": "NVIDIA GH200 data sheet: 480 GB LPDDR5X",
            "cpu_link": "NVIDIA GH200 data sheet: NVLink-C2C",
        },
    ),
    gpus_per_node=1,
    between=_H100.between,
    between_efficiency=0.85,
    sources={"between": "assumed: one 400 Gb/s port per superchip", "between_efficiency": _LINE_SHARE},
)


def _pcie_device(base: Device, name: str, sheet: str, **rates: float) -> Device:
    """A device on a PCIe card: its host is reached over that link, with memory for offload."""
    changed = dict.fromkeys((*rates, "cpu_memory_bytes"), sheet) | {"cpu_memory_bytes": "a round figure"}
    return replace(base, name=name, cpu_memory_bytes=128e9, sources=base.sources | changed, **rates)


_A100_PCIE = _pcie_device(
    A100_DEVICE,
    "A100-PCIe-80GB",
    "NVIDIA A100 80 GB PCIe data sheet",
    memory_bandwidth_bytes_s=1935e9,
    cpu_link=LINKS["pcie4"],
)
_H100_PCIE = _pcie_device(
    _H100_DEVICE,
    "H100-PCIe-80GB",
    "NVIDIA H100 PCIe data sheet",
    peak_flops_s={"float16": 756e12, "bfloat16": 756e12, "float32": 51e12, "float64": 26e12},
    num_units=114,
    memory_bandwidth_bytes_s=2000e9,
    cpu_link=LINKS["pcie5"],
)
_PCIE_SHARE = "assumed: collectives reach 80 % of the line rate of one PCIe link"

_PCIE4 = Cluster(
    name="pcie4",
    device=_A100_PCIE,
    gpus_per_node=4,
    within=LINKS["pcie4"],
    within_efficiency=0.8,
    sources={"within": LINKS["pcie4"].source, "within_efficiency": _PCIE_SHARE, "between": "one box: none"},
)
_PCIE5 = replace(
    _PCIE4,
    name="pcie5",
    device=_H100_PCIE,
    within=LINKS["pcie5"],
    sources=_PCIE4.sources | {"within": LINKS["pcie5"].source},
)
_ETH10 = replace(
    _PCIE4,
    name="eth10",
    gpus_per_node=1,
    within=None,
    within_efficiency=1.0,
    between=LINKS["eth10"],
    between_efficiency=0.85,
    sources={"between": LINKS["eth10"].source, "between_efficiency": _LINE_SHARE},
)

_LAPTOP = Cluster(
    name="laptop",
    device=Device(
        name="laptop core",
        peak_flops_s={"float32": 100e9, "float64": 50e9, "bfloat16": 25e9},
        matmul_efficiency=0.7,
        half_depth=16,
        memory_bytes=4e9,
        memory_bandwidth_bytes_s=10e9,
        launch_s=10e-6,
        sources=dict.fromkeys(
            ("peak_flops_s", "matmul_efficiency", "half_depth", "memory_bytes", "memory_bandwidth_bytes_s", "launch_s"),
            "a round figure for one core of a laptop; `labkit calibrate` measures yours",
        ),
    ),
    gpus_per_node=8,
    within=Link(300e-6, 1e9, "gloo", "a round figure for gloo between processes of one machine"),
    sources={"within": "a round figure for gloo; `labkit calibrate` measures yours"},
)

PRESETS = {each.name: each for each in (_LAPTOP, _PCIE4, _PCIE5, _A100, _H100, _GH200, _ETH10)}
"""Clusters by name."""


def as_cluster(spec: Cluster | str | Path) -> Cluster:
    """A cluster from a preset's name or a JSON file."""
    if isinstance(spec, Cluster):
        return spec
    if str(spec) in PRESETS:
        return PRESETS[str(spec)]
    if str(spec).endswith(".json"):
        return load(spec)
    close = difflib.get_close_matches(str(spec), PRESETS, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ClusterError(f"unknown cluster {spec!r}: {hint}known are {', '.join(PRESETS)}, or the path of a .json file")
