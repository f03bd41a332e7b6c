"""Where the constants of preset a100 come from: fitted again to the measured tables that they were fitted to.

In: a folder with the tables. Out: the preset with its constants fitted anew. Six of them, at once, to two sources of
equal weight; the least mean square of log(predicted / measured):

    Zero Bubble (arXiv 2401.10241), Table 9   forward, backward, weight times of a stage of three layers, two models
    vTrain, the handed tenth                  milliseconds per iteration on one node

and for each all-reduce curve 16 points, to the handed sweep. No judged table (Narayanan 2021, Korthikanti 2022) is
read.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from labkit.cluster import PRESETS, Cluster, Curve
from labkit.costs import Model, Training
from labkit.predict.cases import read_cases, trainings
from labkit.predict.stage import layer_time
from labkit.predict.step import predict

DEVICE_CONSTANTS = ("matmul_efficiency", "half_depth", "launch_s", "forward_stretch", "backward_stretch")
CONSTANTS = (*DEVICE_CONSTANTS, "message_overhead_s")
NUM_POINTS = 16
STAGE_TIMES = "zerobubble_tables_4_5_9_two_models.csv"
ITERATIONS = "vtrain_single_node_calibration.csv"
SWEEPS = {n: f"a100_nvlink_allreduce_{n}gpu.csv" for n in (2, 4, 8)}
_GRID = 64
"""Sizes among which the points of a curve are chosen."""
_LAYERS_OF_STAGE = 3
"""22 and 46 layers on 8 and 16 ranks: 3 on each but the ends, which hold 2 and the embedding or the output layer."""
_FLOOR_S = {2: 20e-6, 4: 25e-6, 8: 40e-6}
"""Assumed time of an all-reduce of next to nothing."""


def fit_preset(folder: str | Path) -> Cluster:
    """Preset a100 with the constants and curves that fit the tables in `folder`; FileNotFoundError if one lacks."""
    curves = {n: fit_curve(*sweep(Path(folder) / name), floor_s=_FLOOR_S[n]) for n, name in SWEEPS.items()}
    start = replace(PRESETS["a100"], all_reduce_curves=curves)
    return fit_constants(start, errors_of(folder))


# ---- six constants


def errors_of(folder: str | Path) -> Callable[[Cluster], np.ndarray]:
    """A function that gives for a cluster log(predicted / measured) of every number, the sources weighted alike."""
    stages, steps = stage_times_measured(Path(folder) / STAGE_TIMES), iterations_measured(Path(folder) / ITERATIONS)

    def errors(cluster: Cluster) -> np.ndarray:
        of_stages = [error for training, times in stages for error in _stage_errors(training, times, cluster)]
        of_steps = [np.log(predict(training, cluster).step_s / measured) for training, measured in steps]
        return np.concatenate([np.array(each) / np.sqrt(len(each)) for each in (of_stages, of_steps)])

    return errors


def stage_times_measured(path: Path) -> list[tuple[Training, tuple[float, float, float]]]:
    """Forward, backward of inputs and backward of weights, seconds of a stage; Megatron-LM with fused accumulation."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(_training(row), tuple(float(row[name]) * 1e-3 for name in ("T_F_ms", "T_B_ms", "T_W_ms"))) for row in rows]


def _training(row: dict[str, str]) -> Training:
    model = Model(*(int(row[name]) for name in ("layers", "hidden", "heads", "seq")))
    p, b, m = (int(row[name]) for name in ("p", "microbatch", "m"))
    return Training(
        model=model, pp=p, microbatch=b, global_batch=m * b, schedule="zb_h1", fused_accumulation=True
    )  # fmt: skip


def iterations_measured(path: Path) -> list[tuple[Training, float]]:
    """Seconds of an iteration."""
    table = read_cases(path)
    measured = (np.array(table["iteration time (ms)"]) * 1e-3).tolist()
    return list(zip(trainings(table), measured, strict=True))


def _stage_errors(training: Training, times: tuple[float, float, float], cluster: Cluster) -> list[float]:
    one = layer_time(training, cluster)
    parts = (one.forward_s, one.backward_s - one.weight_s, one.weight_s)
    return [float(np.log(_LAYERS_OF_STAGE * part / time)) for part, time in zip(parts, times, strict=True)]


def fit_constants(start: Cluster, errors: Callable[[Cluster], np.ndarray], *, num_rounds: int = 30) -> Cluster:
    """The constants that make the errors' squares least, by Gauss and Newton from those of `start`."""
    at, wrong = start, errors(start)
    for _ in range(num_rounds):
        step = gauss_newton_step(at, wrong, errors)
        for share in (1.0, 0.5, 0.25, 0.1, 0.01):  # launch times have a kink: a whole step may go too far
            there = with_constants(at, constants_of(at) * np.exp(share * step))
            left = errors(there)
            if left @ left < wrong @ wrong:
                break
        else:
            return at
        gain, at, wrong = wrong @ wrong - left @ left, there, left
        if gain < 1e-9:
            return at
    return at


def gauss_newton_step(at: Cluster, wrong: np.ndarray, errors: Callable[[Cluster], np.ndarray]) -> np.ndarray:
    """By how much the logarithm of each constant should change."""
    values, slopes = constants_of(at), []
    for place in range(len(values)):
        moved = values.copy()
        moved[place] *= np.exp(1e-4)
        slopes.append((errors(with_constants(at, moved)) - wrong) / 1e-4)
    return np.clip(np.linalg.lstsq(np.array(slopes).T, -wrong)[0], -0.5, 0.5)


def constants_of(cluster: Cluster) -> np.ndarray:
    return np.array([getattr(cluster.device, name) for name in DEVICE_CONSTANTS] + [cluster.message_overhead_s])


def with_constants(cluster: Cluster, values: np.ndarray) -> Cluster:
    *of_device, message_s = map(float, values)
    of_device[0] = min(of_device[0], 1.0)
    device = replace(cluster.device, **dict(zip(DEVICE_CONSTANTS, of_device, strict=True)))
    return replace(cluster, device=device, message_overhead_s=message_s)


# ---- all-reduce curves


def sweep(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and seconds of an nccl-tests sweep."""
    with path.open(newline="") as file:
        rows = [(float(row[0]), float(row[3]) * 1e-9) for row in list(csv.reader(file))[1:]]
    return tuple(np.array(rows).T)


def fit_curve(sizes: np.ndarray, times: np.ndarray, *, floor_s: float, num_points: int = NUM_POINTS) -> Curve:
    """Straight pieces through the `num_points` sizes, out of a geometric grid, that make relative errors least.

    The places are the best there are for pieces from measured point to measured point; then the times of the points are
    moved to where squares of the relative errors are least, and made to rise.
    """
    grid = np.unique(np.searchsorted(sizes, np.geomspace(sizes[0], sizes[-1], _GRID) * (1 - 1e-9)))
    places = grid[_best_path(_piece_costs(sizes, times, grid), num_points)]
    knots = np.maximum.accumulate(_knot_times(sizes, times, sizes[places]))
    source = f"{num_points} points fitted to the handed nccl-tests sweep on A100 NVLink; below 1 MiB an assumed floor"
    return Curve(min(floor_s, float(knots[0])), tuple(sizes[places].tolist()), tuple(knots.tolist()), source)


def _piece_costs(sizes: np.ndarray, times: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """(grid, grid): squared relative errors of one straight piece from grid point i to j; infinite where j <= i."""
    costs = np.full((len(grid), len(grid)), np.inf)
    for i, low in enumerate(grid):
        for j, high in enumerate(grid[i + 1 :], i + 1):
            part = slice(low, high)
            line = np.interp(sizes[part], sizes[[low, high]], times[[low, high]])
            costs[i, j] = ((line / times[part] - 1) ** 2).sum()
    return costs


def _best_path(costs: np.ndarray, num_points: int) -> list[int]:
    """The cheapest way from the first to the last place by `num_points` places (dynamic programming)."""
    best, came_from = costs[0], []
    for _ in range(num_points - 2):
        through = best[:, None] + costs
        came_from.append(through.argmin(0))
        best = through.min(0)
    path = [len(costs) - 1]
    for before in reversed(came_from):
        path.append(int(before[path[-1]]))
    return [0, *path[::-1]]


def _knot_times(sizes: np.ndarray, times: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Weighted least squares: each measured time is a mix of the two points beside it."""
    right = np.clip(np.searchsorted(knots, sizes, side="right"), 1, len(knots) - 1)
    weight = (sizes - knots[right - 1]) / (knots[right] - knots[right - 1])
    mix = np.zeros((len(sizes), len(knots)))
    row = np.arange(len(sizes))
    mix[row, right - 1], mix[row, right] = 1 - weight, weight
    return np.linalg.lstsq(mix / times[:, None], np.ones(len(sizes)))[0]
