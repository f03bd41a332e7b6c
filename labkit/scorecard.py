"""How far predictions are from published measurements, every row shown, misses too.

In: the folder with the published tables. Out: `Score` tables, and one Markdown page. A table that is not there is
left out with a line that says so. Which constants were fitted to what stands under every table; rows that a constant
was fitted to are marked as such and prove nothing but the fit.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from labkit import schedule
from labkit.cluster import PRESETS
from labkit.cluster.collective import measured_all_reduce_s
from labkit.costs import zero_bytes
from labkit.predict import predict_cases, read_cases

GB = 1e9


@dataclass(frozen=True)
class Row:
    """One published number and its prediction."""

    case: str
    quantity: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """(predicted - published) / published."""
        return self.predicted / self.published - 1


@dataclass(frozen=True)
class Score:
    """One published table, recomputed."""

    title: str
    calibration: str
    """What the constants in it were fitted to, in words."""
    rows: tuple[Row, ...]
    absolute: bool = False
    """Errors are differences (of bubble rates), not relative."""
    listed: bool = True
    """Rows are few enough to print each."""

    @property
    def errors(self) -> list[float]:
        return [row.predicted - row.published if self.absolute else row.error for row in self.rows]

    @property
    def mean_error(self) -> float:
        """Mean of the errors' sizes."""
        return sum(map(abs, self.errors)) / len(self.errors)

    @property
    def worst_error(self) -> float:
        return max(map(abs, self.errors))


def scores(folder: str | Path) -> list[Score]:
    """Every table whose file is in `folder`; ZeRO's example needs none."""
    found = [score(path) for name, score in _FILES.items() for path in sorted(Path(folder).glob(name))]
    return [zero_example(), *found]


def missing_files(folder: str | Path) -> list[str]:
    """Published tables that are not in `folder`."""
    return [name for name in _FILES if not any(Path(folder).glob(name))]


# ---- one function per table


def narayanan(path: Path) -> Score:
    """TFLOP/s per GPU of Narayanan et al. 2021, Table 1."""
    rows = _cases(path, ("tflops_per_gpu",), lambda row: f"{row['params_b']:g} B on {row['gpus']}")
    return Score(
        "Narayanan et al. 2021, Table 1: TFLOP/s per GPU",
        "preset a100, fitted to Zero Bubble Table 9 and a tenth of vTrain. No constant was fitted to these rows; what "
        "the model counts (that torch adds up gradients in a pass of its own) was settled with them in sight",
        tuple(rows),
    )


def korthikanti(path: Path) -> Score:
    """Iteration times of Korthikanti et al. 2022, Table 5."""
    columns = ("iter_s_full_recompute", "iter_s_seqpar_selective")
    return Score(
        "Korthikanti et al. 2022, Table 5: seconds per iteration",
        "preset a100, as above: no constant fitted to these rows, but they were in sight",
        tuple(_cases(path, columns, lambda row: row["model"])),
    )


def vtrain(path: Path) -> Score:
    """Iteration times of a part of vTrain's measurements."""
    rows = _cases(path, ("iteration time (ms)",), lambda row: f"hidden {row['hidden size']}, {row['# GPUs']} GPUs")
    handed = "it was fitted to these rows too, so this is the error left by the fit"
    other = "fitted to the handed tenth only"
    return Score(
        f"vTrain, {path.stem}: milliseconds per iteration",
        f"preset a100: {handed if path.stem == 'vtrain_single_node_calibration' else other}",
        tuple(rows),
        listed=False,
    )


def all_reduce(num_ranks: int) -> Callable[[Path], Score]:
    """All-reduce times of one sweep."""

    def score(path: Path) -> Score:
        with path.open(newline="") as file:
            lines = [line for line in csv.reader(file)][1:]
        curves = PRESETS["a100"].all_reduce_curves
        pairs = [(float(line[0]), float(line[3]) * 1e-9) for line in lines]
        rows = [Row(f"{size:.0f} B", "s", time, measured_all_reduce_s(curves, size, num_ranks)) for size, time in pairs]
        return Score(
            f"All-reduce on {num_ranks} x A100 NVLink, 1 MB to 1 GB",
            "preset a100's curve of 16 points, fitted to this sweep: the error left by the fit",
            tuple(rows),
            listed=False,
        )

    return score


def zero_bubble(path: Path) -> Score:
    """Bubble rates of Qi et al. 2024 from their own durations."""
    with path.open(newline="") as file:
        cases = list(csv.DictReader(file))
    names = {
        "br_1F1B": ("1f1b", 1),
        "br_1F1B_I": ("interleaved_1f1b", 3),
        "br_ZB_H1": ("zb_h1", 1),
        "br_ZB_H2": ("zb_h2", 1),
    }
    rows = [
        Row(f"{case['model']}, m {case['m']}", column, float(case[column]), bubble_rate(case, *names[column]))
        for case in cases
        for column in names
    ]
    return Score(
        "Qi et al. 2024, Tables 5 and 9: bubble rate",
        "no constant: the schedule on a clock with the paper's own durations",
        tuple(rows),
        absolute=True,
    )


def bubble_rate(case: dict[str, str], name: str, virtual: int) -> float:
    """The bubble rate of one row of Table 9: idle share of the longest rank's span."""
    order = schedule.generate(name, int(case["p"]), int(case["m"]), virtual)
    forward, inputs, weights = (float(case[column]) / virtual for column in ("T_F_ms", "T_B_ms", "T_W_ms"))
    durations = schedule.Durations(forward=forward, backward_input=inputs, backward_weight=weights)
    return schedule.bubble_of_span(schedule.simulate(order, durations, hop=float(case["T_comm_ms"])))


def zero_example() -> Score:
    """7.5 B parameters on 64 ranks: figure 1 of Rajbhandari et al. 2019."""
    published = (120, 31.4, 16.6, 1.9)
    rows = [
        Row(f"stage {stage}", "GB", value, sum(zero_bytes(7.5e9, 64, stage)) / GB)
        for stage, value in enumerate(published)
    ]
    return Score("Rajbhandari et al. 2019, figure 1: GB per rank", "no constant", tuple(rows))


_FILES: dict[str, Callable[[Path], Score]] = {
    "narayanan2021_table1*.csv": narayanan,
    "korthikanti2022*.csv": korthikanti,
    "vtrain_*.csv": vtrain,
    "zerobubble_*.csv": zero_bubble,
    "a100_nvlink_allreduce_2gpu.csv": all_reduce(2),
    "a100_nvlink_allreduce_4gpu.csv": all_reduce(4),
    "a100_nvlink_allreduce_8gpu.csv": all_reduce(8),
}
"""Names of the files that hold a published table, and what scores each."""


def _cases(path: Path, columns: tuple[str, ...], name: Callable[[dict], str]) -> list[Row]:
    table: pl.DataFrame = predict_cases(read_cases(path), "a100")
    return [
        Row(name(row), column, row[column], row[f"predicted {column}"])
        for row in table.to_dicts()
        for column in columns
        if row[f"predicted {column}"] is not None
    ]


# ---- as data and as text


def to_dict(found: list[Score], absent: list[str] = ()) -> dict[str, object]:
    """Plain data for JSON."""
    tables = [
        {
            "title": score.title,
            "calibration": score.calibration,
            "error": "difference" if score.absolute else "relative",
            "mean_error": score.mean_error,
            "worst_error": score.worst_error,
            "rows": [{**asdict(row), "error": error} for row, error in zip(score.rows, score.errors, strict=True)],
        }
        for score in found
    ]
    return {"tables": tables, "absent": list(absent)}


def markdown(found: list[Score], absent: list[str] = ()) -> str:
    """The page: a summary, every listed table, and where the constants come from."""
    lines = ["# Scorecard: predicted against published", "", "| table | rows | mean error | worst | constants |"]
    lines += ["|---|---|---|---|---|"]
    lines += [
        f"| {score.title} | {len(score.rows)} | {_number(score, score.mean_error)} "
        f"| {_number(score, score.worst_error)} | {score.calibration} |"
        for score in found
    ]
    lines += [f"\nNot there, so not scored: {', '.join(absent)}."] if absent else []
    for score in found:
        lines += _table(score) if score.listed else []
    return "\n".join([*lines, *_constants(), ""])


def _table(score: Score) -> list[str]:
    lines = [
        "",
        f"## {score.title}",
        "",
        score.calibration + ".",
        "",
        "| case | quantity | published | predicted | error |",
    ]
    lines += ["|---|---|---|---|---|"]
    return lines + [
        f"| {row.case} | {row.quantity} | {row.published:.4g} | {row.predicted:.4g} "
        f"| {_number(score, error, sign='+')} |"
        for row, error in zip(score.rows, score.errors, strict=True)
    ]


def _number(score: Score, value: float, sign: str = "") -> str:
    return f"{value:{sign}.4f}" if score.absolute else f"{value:{sign}.1%}"


def _constants() -> list[str]:
    cluster = PRESETS["a100"]
    sources = {**cluster.device.sources, **cluster.sources}
    values = {name: getattr(cluster.device, name, None) or getattr(cluster, name, None) for name in sources}
    lines = ["", "## Constants of preset a100", "", "| constant | value | source |", "|---|---|---|"]
    return lines + [f"| {name} | {_value(values[name])} | {source} |" for name, source in sources.items()]


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {rate:g}" for key, rate in value.items())
    return f"{value:g}" if isinstance(value, int | float) else str(value)
