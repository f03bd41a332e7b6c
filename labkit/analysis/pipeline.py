"""How much of a pipeline's time is bubble.

In: a Trace. Out: a `Bubble` by both published definitions. Works on traces of any source.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from labkit.analysis.steps import pipeline_of
from labkit.event import STAGE_KINDS
from labkit.trace import Trace


@dataclass(frozen=True)
class Bubble:
    """Idle share of a pipeline, the median over its steps, by both definitions."""

    of_total: float  # idle / whole time: (p - 1) / (m + p - 1) for 1F1B (Qi et al. 2024)
    of_ideal: float  # idle / busy time: (p - 1) / m (Narayanan et al. 2021)


def bubble(trace: Trace) -> Bubble | None:
    """How much of a step the ranks of a pipeline stood idle; None without a pipeline.

    Of each step: the time from the first start to the last end of a stage's work, times the number of ranks, less the
    work. Two ranks, window 10 ms each, 6 and 8 ms of work: 6 of 20 idle, so 0.3 of total and 6/14 of ideal.
    Loading, loss and optimizer are left out, as the published formulas leave them out.
    """
    steps = _pipeline_steps(trace)
    if trace.meta.mesh.pp == 1 or steps.is_empty():
        return None
    busy = steps["busy_ns"] / (steps["window_ns"] * steps["ranks"])
    of_total = float((1 - busy).median())
    return Bubble(of_total, of_total / (1 - of_total))


def _pipeline_steps(trace: Trace) -> pl.DataFrame:
    """One row per step and pipeline (replica and tensor parallel position): window, work and ranks."""
    work = trace.of(*STAGE_KINDS).with_columns(pipeline_of(trace)).sort("start_ns")
    reached = pl.col("end_ns").cum_max().shift(1).over("rank", "step")  # spans that overlap are busy once
    busy = (pl.col("end_ns") - pl.max_horizontal("start_ns", reached)).clip(0).alias("busy_ns")
    return (
        work.with_columns(busy)
        .group_by("step", "pipeline")
        .agg(
            (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("window_ns"),
            pl.col("busy_ns").sum(),
            pl.col("rank").n_unique().alias("ranks"),
        )
        .filter(pl.col("window_ns") > 0)
        .sort("step", "pipeline")
    )
