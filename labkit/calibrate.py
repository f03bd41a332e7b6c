"""Measure this machine and write it down as a cluster: all-reduce times, matrix products, memory.

In: nothing but this machine; real runs of small plans through `lab.run`. Out: a `Cluster` named "this machine", whose
JSON file `labkit predict --cluster FILE` and `as_cluster` take. Takes about half a minute and wants a quiet machine.

    link      gradient all-reduces of 2 (and 4) replicas of several widths: last issue to last completion, median
    products  forward times of linear layers of several widths, CPU clock: seconds = launch + FLOPs / rate
    memory    copying a large array
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import psutil

from labkit import lab
from labkit.cluster import Cluster, Curve, Device
from labkit.link import Link
from labkit.plan import Plan
from labkit.trace import Trace

WIDTHS = (32, 128, 384, 768)
"""Widths of the digits model; its gradients are then 20 KB to 5 MB."""
STEPS = 8
_KERNELS_OF_LAYER = 2  # product with bias, ReLU


def calibrate(num_ranks: Sequence[int] | None = None, widths: Sequence[int] = WIDTHS) -> Cluster:
    """This machine, measured, with a device for each core. Raises RunError if a run fails.

    num_ranks   of the all-reduces; those of 2 and 4 that have a core each, and 2 in any case
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_ranks = num_ranks or [n for n in (2, 4) if n <= max(cores, 2)]
    curves = {n: all_reduce_curve(n, widths) for n in num_ranks}
    rate, launch_s = product_rate(widths)
    measured = f"measured here by labkit calibrate on {time.strftime('%Y-%m-%d')}"
    names = ("launch_s", "memory_bandwidth_bytes_s", "memory_bytes")
    device = Device(
        name="one core",
        peak_flops_s={"float32": rate, "bfloat16": rate, "float64": rate / 2},
        matmul_efficiency=1.0,
        half_depth=1.0,
        memory_bytes=float(psutil.virtual_memory().total) / cores,
        memory_bandwidth_bytes_s=copy_rate(),
        memory_efficiency=1.0,
        launch_s=launch_s,
        sources=dict.fromkeys(names, measured)
        | {
            "peak_flops_s": f"{measured} in float32, as reached; float64 taken as half, bfloat16 as the same",
            "matmul_efficiency": "1: the rate is the one reached",
            "memory_efficiency": "1: the rate is the one reached",
        },
    )
    return Cluster(
        name="this machine",
        device=device,
        gpus_per_node=cores,
        within=line(curves[min(num_ranks)], min(num_ranks)),
        all_reduce_curves=curves,
        sources={"within": measured, "all_reduce_curves": _curve_words(curves, measured)},
    )


def all_reduce_curve(num_ranks: int, widths: Sequence[int]) -> Curve:
    """Times of real gradient all-reduces over sizes, made to rise; `source` says how many were raised for it."""
    found: dict[int, list[float]] = {}
    for width in widths:
        plan = Plan(dp=num_ranks, width=width, global_batch=8 * num_ranks, steps=STEPS, record=("compute", "sync"))
        for size, seconds in all_reduce_times(lab.run(plan)):
            found.setdefault(size, []).append(seconds)
    sizes = sorted(size for size, times in found.items() if len(times) >= STEPS // 2)
    medians = np.array([float(np.median(found[size])) for size in sizes])
    times = np.maximum.accumulate(medians)
    source = f"labkit calibrate; {_raised_words(int((times > medians).sum()), len(sizes))}"
    return Curve(float(times[0]) / 2, tuple(map(float, sizes)), tuple(map(float, times)), source)


def _raised_words(num_raised: int, num_sizes: int) -> str:
    """What was done to make times rise with sizes, which noise can upset."""
    if not num_raised:
        return "as measured"
    return f"{num_raised} of {num_sizes} times raised to that of a smaller size, which had taken longer"


def _curve_words(curves: Mapping[int, Curve], measured: str) -> str:
    return "; ".join([measured, *(f"{n} ranks: {curve.source.partition('; ')[2]}" for n, curve in curves.items())])


def all_reduce_times(trace: Trace) -> list[tuple[int, float]]:
    """(bytes, seconds) of every all-reduce along dp: from the last rank's issue to the last completion."""
    syncs = trace.of("sync").filter((pl.col("op") == "all_reduce") & (pl.col("axis") == "dp") & (pl.col("step") > 0))
    each = syncs.group_by("group", "seq").agg(
        pl.col("size_bytes").first(), pl.col("end_ns").max() - pl.col("start_ns").max()
    )
    return [(size, max(ns, 1) * 1e-9) for size, ns in each.select("size_bytes", "end_ns").rows()]


def line(curve: Curve, num_ranks: int) -> Link:
    """The link whose ring would give the curve's first and last point."""
    small, large = curve.sizes_bytes[0], curve.sizes_bytes[-1]
    per_byte = max((curve.times_s[-1] - curve.times_s[0]) / max(large - small, 1.0), 1e-12)
    fixed = max(curve.times_s[0] - per_byte * small, 0.0)
    hops, share = 2 * (num_ranks - 1), 2 * (num_ranks - 1) / num_ranks
    return Link(fixed / hops, share / per_byte, "gloo here", "labkit calibrate")


def product_rate(widths: Sequence[int]) -> tuple[float, float]:
    """(FLOP/s, seconds to launch a kernel) of one rank, from forward times of linear layers."""
    batch, points = 256, []
    for width in widths:
        trace = lab.run(Plan(width=width, global_batch=batch, steps=STEPS, record=("compute",)))
        inner = trace.of("forward").filter(pl.col("layer").is_in(["fc1", "fc2"]) & (pl.col("step") > 0))
        points.append((2.0 * batch * width * width, float((inner["cpu_ns"]).median()) * 1e-9))
    slope, fixed = np.polyfit(*np.array(points).T, 1)
    return 1 / max(float(slope), 1e-15), max(float(fixed), 0.0) / _KERNELS_OF_LAYER


def copy_rate(size_bytes: int = 64 * 2**20) -> float:
    """Bytes read and written per second when copying a large array, the best of five."""
    source = np.ones(size_bytes // 8)
    target = np.empty_like(source)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return 2 * size_bytes / min(times)
