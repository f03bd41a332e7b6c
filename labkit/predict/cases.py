"""A table of cases predicted: a CSV of model sizes and plans in, predictions beside what was measured out.

In: a CSV whose columns are named as in papers or as `labkit predict` names its flags. Out: the same table with
`predicted_*` columns and, for every measured column that is known, its prediction and the error in percent. A row that
cannot be predicted keeps its place and says why.
"""

from __future__ import annotations

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


def read_cases(path: str | Path) -> pl.DataFrame:
    """The CSV at `path`."""
    try:
        table = pl.read_csv(path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"cannot read {path} as CSV: {error}") from None
    words = {_word(name) for name in table.columns}
    missing = [name for name in ("layers", "hidden", "heads") if name not in words]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}: its columns are {', '.join(table.columns)}")
    return table


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
    words = {columns[name]: value for name, value in row.items() if value is not None}
    measured = {name: word for name, word in columns.items() if word in _MEASURED}
    try:
        return _predicted(words, row, measured, cluster, shared)
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
    for name, word in measured.items():
        changes, of = _MEASURED[word]
        value = of(predict(training_of(words, shared | dict(changes)), cluster))
        result[f"predicted {name}"] = value
        result[f"error_percent {name}"] = 100 * (value / row[name] - 1) if row[name] else None
    return {**result, "problem": None}


def _nothing(measured: Mapping[str, str]) -> dict[str, Any]:
    always = ("predicted_step_s", "predicted_hardware_tflops_per_gpu", "predicted_memory_gb", "predicted_fits")
    each = [f"{what} {name}" for name in measured for what in ("predicted", "error_percent")]
    return dict.fromkeys((*always, *each))


def training_of(words: Mapping[str, Any], shared: Mapping[str, Any]) -> Training:
    """One row as a Training; dp from the number of GPUs where it is not given."""
    model = Model(**{name: words[name] for name in _MODEL if name in words})
    given = dict(shared) | {name: value for name, value in words.items() if name in _FLAGS}
    if "ddp_impl_sc21_script" in words:
        given["overlap_dp"] = words["ddp_impl_sc21_script"] == "torch"
    if "gpus" in words and "dp" not in given:
        cut = given.get("tp", 1) * given.get("pp", 1)
        if words["gpus"] % cut:
            raise ValueError(f"{words['gpus']} GPUs do not divide into tp x pp = {cut}")
        given["dp"] = words["gpus"] // cut
    return Training(model=model, **given)
