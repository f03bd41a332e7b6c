"""A table of cases predicted: a CSV of model sizes and plans in, predictions beside what was measured out.

In: a CSV whose columns are named as in papers or as `labkit predict` names its flags. Out: the same table with
`predicted_*` columns and, for every measured column that is known, its prediction and the error in percent. A row that
cannot be predicted keeps its place and says why, as does one with a measured value that is no number above 0. Cells are
read one by one: a wrong one spoils its own row only.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl

from labkit.cluster import Cluster, as_cluster
from labkit.costs import Model, Training
from labkit.predict.step import Prediction, predict

_NAMES = {
    "gpus": ("num_gpus", "n_gpus", "num_ranks", "ranks"),
    "layers": ("num_layers", "l"),
    "hidden": ("hidden_size", "h"),
    "heads": ("attention_heads", "num_heads", "num_attention_heads", "a"),
    "sequence": ("sequence_length", "seq", "seq_length", "s"),
    "vocabulary": ("vocab", "vocabulary_size", "vocab_size"),
    "global_batch": ("global_batch_size", "batch", "batch_size"),
    "microbatch": ("micro_batch", "micro_batch_size", "microbatch_size", "microbatch_sc21_script", "b"),
    "tp": ("tensor_parallelism", "tensor_parallel", "tensor_parallel_size", "t"),
    "dp": ("data_parallelism", "data_parallel", "data_parallel_size", "d"),
    "pp": ("pipeline_parallelism", "pipeline_parallel", "pipeline_parallel_size", "p"),
    "virtual": ("v", "v_derived", "interleave", "interleave_m", "interleaving"),
}
"""Our word for a column -> other words for it, lower case."""

_TORCH_DDP = "ddp_impl_sc21_script"
_SURPLUS = "cells beyond the last column"
_FLAGS = {field.name for field in fields(Training)} - {"model"}
_MODEL = tuple(field.name for field in fields(Model))

_SELECTIVE = {"recompute": "selective", "sequence_parallel": True}
_FULL = {"recompute": "full", "sequence_parallel": False}


def _step_s(found: Prediction) -> float:
    return found.step_s


_MEASURED: dict[str, tuple[Mapping[str, Any], Callable[[Prediction], float]]] = {
    "step_s": ({}, _step_s),
    "iter_s": ({}, _step_s),
    "iteration_time_s": ({}, _step_s),
    "step_ms": ({}, lambda found: found.step_s * 1e3),
    "iteration_time_ms": ({}, lambda found: found.step_s * 1e3),
    "iter_s_full_recompute": (_FULL, _step_s),
    "iter_s_seqpar_selective": (_SELECTIVE, _step_s),
    "tflops_per_gpu": ({}, lambda found: found.hardware_tflops_per_gpu),
    "pct_peak": ({}, lambda found: found.hfu * 100),
    "agg_pflops": ({}, lambda found: found.hardware_tflops_per_gpu * found.training.num_ranks / 1e3),
    "mfu_pct": (_SELECTIVE, lambda found: found.mfu * 100),
    "hfu_pct": (_SELECTIVE, lambda found: found.hfu * 100),
}
"""Known measured columns: what it changes in the plan, and its counterpart in a prediction."""

_TABLES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "Narayanan et al. 2021, Table 1": (("tflops_per_gpu", "agg_pflops"), {"recompute": "full", "overlap_dp": False}),
    "Korthikanti et al. 2022, Table 5": (
        ("iter_s_full_recompute", "iter_s_seqpar_selective"),
        {"gradient_bytes": 4, "fused_accumulation": True},
    ),
    "vTrain": (
        ("iteration_time_ms", "tensor_parallelism"),
        {"recompute": "full", "overlap_dp": False, "scatter_gather": False},
    ),
}
"""Published tables by the columns that tell them, and what all their rows share but no column says."""


def predict_cases(table: pl.DataFrame, cluster: Cluster | str, **settings: Any) -> pl.DataFrame:
    """`table` with predictions beside its measured columns. `settings` are Training fields that no column gives."""
    cluster = as_cluster(cluster)
    columns = {name: _word(name) for name in table.columns}
    shared = shared_settings(table) | settings
    rows = [_row(row, columns, cluster, shared) for row in table.to_dicts()]
    added = pl.DataFrame(rows, infer_schema_length=None)
    return pl.concat([table, added], how="horizontal")


def trainings(table: pl.DataFrame, **settings: Any) -> list[Training]:
    """Each row of a table of which all can be predicted."""
    shared = shared_settings(table) | settings
    words = [{_word(name): _value(cell) for name, cell in row.items()} for row in table.to_dicts()]
    return [training_of({name: value for name, value in row.items() if value is not None}, shared) for row in words]


def read_cases(path: str | Path) -> pl.DataFrame:
    """The CSV at `path`."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
        table = _table(lines)
    except (OSError, UnicodeDecodeError, csv.Error, pl.exceptions.PolarsError) as error:
        raise ValueError(f"cannot read {path} as CSV: {error}") from None
    words = {_word(name) for name in table.columns}
    missing = [name for name in ("layers", "hidden", "heads") if name not in words]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}: its columns are {', '.join(table.columns)}")
    return table.with_columns(_typed(column) for column in table)


def _table(lines: list[list[str]]) -> pl.DataFrame:
    """Lines as a table of text. Cells that have no column go to one of their own, so that only their row is spoilt."""
    num = len(lines[0]) if lines else 0
    buffer = io.StringIO()
    csv.writer(buffer).writerows([line + [""] * (num - len(line)) for line in (line[:num] for line in lines)])
    table = pl.read_csv(buffer.getvalue().encode(), infer_schema=False)
    surplus = [", ".join(filter(None, line[num:])) or None for line in lines[1:]]
    return table.with_columns(pl.Series(_SURPLUS, surplus, pl.String)) if any(surplus) else table


def unused_columns(table: pl.DataFrame) -> list[str]:
    """Names of columns that say nothing to a prediction: misspelt ones, or notes."""
    known = {*_FLAGS, *_MODEL, *_MEASURED, "gpus", _TORCH_DDP, _word(_SURPLUS)}
    return [name for name in table.columns if _word(name) not in known]


def _typed(column: pl.Series) -> pl.Series:
    """A column of text as numbers, or as yes and no, if all of its cells are."""
    values = [_value(cell) for cell in column]
    kinds = {type(value) for value in values if value is not None}
    if kinds and (kinds <= {int, float} or kinds == {bool}):
        return pl.Series(column.name, values, dtype=None if kinds != {int, float} else pl.Float64, strict=False)
    return column


def _value(cell: Any) -> Any:
    """One cell: "24" and "24.0" are 24, "true" is True, "" is None, other text stays."""
    if isinstance(cell, str):
        text = cell.strip()
        if not text or text.lower() in ("true", "false"):
            return text.lower() == "true" if text else None
        try:
            cell = float(text)
        except ValueError:
            return text
        if not math.isfinite(cell):
            return text  # "nan" is no number of anything, and JSON has no word for it
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def shared_settings(table: pl.DataFrame) -> dict[str, Any]:
    """What all rows of a known published table share; empty for others."""
    words = {_word(name) for name in table.columns} | {_plain(name) for name in table.columns}
    return next((dict(shared) for needed, shared in _TABLES.values() if set(needed) <= words), {})


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")


def _word(name: str) -> str:
    """Our word for a column's name."""
    plain = _plain(name)
    return next((word for word, others in _NAMES.items() if plain in others), plain)


def _row(
    row: Mapping[str, Any], columns: Mapping[str, str], cluster: Cluster, shared: dict[str, Any]
) -> dict[str, Any]:
    values = {name: _value(cell) for name, cell in row.items()}
    words = {columns[name]: value for name, value in values.items() if value is not None}
    measured = {name: word for name, word in columns.items() if word in _MEASURED}
    try:
        if values.get(_SURPLUS) is not None:
            raise ValueError(f"cells beyond the last column ({values[_SURPLUS]}): remove them, or add their column")
        return _predicted(words, values, measured, cluster, shared)
    except ValueError as error:
        return {**_nothing(measured), "problem": str(error)}


def _predicted(
    words: Mapping[str, Any],
    row: Mapping[str, Any],
    measured: Mapping[str, str],
    cluster: Cluster,
    shared: dict[str, Any],
) -> dict[str, Any]:
    found = predict(training_of(words, shared), cluster)
    result: dict[str, Any] = {
        "predicted_step_s": found.step_s,
        "predicted_hardware_tflops_per_gpu": found.hardware_tflops_per_gpu,
        "predicted_memory_gb": found.memory.total_bytes / 1e9,
        "predicted_fits": found.fits,
    }
    wrong = [name for name in measured if row[name] is not None and not _is_measure(row[name])]
    for name, word in measured.items():
        changes, of = _MEASURED[word]
        value = of(predict(training_of(words, shared | dict(changes)), cluster))
        known = row[name] is not None and name not in wrong
        result[f"predicted {name}"] = value
        result[f"error_percent {name}"] = 100 * (value / row[name] - 1) if known else None
    problems = [f"{name} {row[name]!r} is not a number above 0, so it is left out" for name in wrong]
    return {**result, "problem": "; ".join(problems) or None}


def _is_measure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _nothing(measured: Mapping[str, str]) -> dict[str, Any]:
    always = ("predicted_step_s", "predicted_hardware_tflops_per_gpu", "predicted_memory_gb", "predicted_fits")
    each = [f"{what} {name}" for name in measured for what in ("predicted", "error_percent")]
    return dict.fromkeys((*always, *each))


def training_of(words: Mapping[str, Any], shared: Mapping[str, Any]) -> Training:
    """One row as a Training; dp from the number of GPUs where it is not given."""
    given = dict(shared) | {name: value for name, value in words.items() if name in _FLAGS}
    sizes = {name: words[name] for name in _MODEL if name in words}
    _check_cells(sizes, given, words)
    if _TORCH_DDP in words:
        given["overlap_dp"] = words[_TORCH_DDP] == "torch"
    if "gpus" in words:
        cut = given.get("tp", 1) * given.get("pp", 1)
        if words["gpus"] % cut:
            raise ValueError(f"{words['gpus']} GPUs do not divide into tp x pp = {cut}")
        dp = given.setdefault("dp", words["gpus"] // cut)
        if dp * cut != words["gpus"]:
            raise ValueError(f"{words['gpus']} GPUs, but tp x pp x dp = {dp * cut}: correct one of them")
    return Training(model=Model(**sizes), **given)


_NUMBERS = ("gpus", "dp", "tp", "pp", "global_batch", "microbatch", "virtual")
_NAMED = ("schedule", "recompute", "dtype")
_YES_OR_NO = ("sequence_parallel", "offload", "overlap_dp", "scatter_gather", "fused_accumulation")


def _check_cells(sizes: Mapping[str, Any], given: dict[str, Any], words: Mapping[str, Any]) -> None:
    """Cells of the right type, before anything is computed from them; 0 and 1 become no and yes."""
    for name in ("layers", "hidden", "heads"):
        if name not in sizes:
            raise ValueError(f"{name} is empty: give a whole number, 1 or more")
    for name, value in (given | {name: words[name] for name in ("gpus",) if name in words}).items():
        if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more")
        if name in _NAMED and not isinstance(value, str | None):
            raise ValueError(f"{name}={value!r}: give a name")
        if name in _YES_OR_NO:
            if value not in (0, 1):
                raise ValueError(f"{name}={value!r}: give true or false")
            given[name] = bool(value)
