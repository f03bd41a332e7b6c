"""Runs beside each other: what a step takes, what is synced and held, whether they learn the same, and predictions.

In: Traces. Out: numbers and tables. Nothing is run: where a run is predicted from another one, `replay` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit import analysis
from labkit.plan import Plan, PlanError
from labkit.replay import Changes, ReplayError, exposed_sync_ns, replan, replay, step_ns
from labkit.replay.replanned import usual_clock
from labkit.trace import Trace


@dataclass(frozen=True)
class Numbers:
    """One run in numbers; None where the trace cannot say."""

    num_ranks: int
    step_ns: float | None  # see replay.step_ns
    samples_per_s: float | None
    working: float | None  # share of the ranks' time in which they computed
    bubble: float | None  # idle share of the total time of a pipeline
    exposed_sync_ns: float | None  # of a rank and step, all axes
    sync_bytes: dict[str, float]  # of a rank and step, per axis that has bytes
    memory_peak_bytes: int | None  # of the fullest rank
    losses: tuple[float, ...]


def numbers(trace: Trace) -> Numbers:
    """One run in numbers. Samples per second count the global batch of the plan."""
    idle, took_ns = analysis.bubble(trace), _step_ns(trace)
    time = analysis.breakdown(trace)
    worked_ns, window_ns = (time["compute_ns"] + time["overlapped_sync_ns"]).sum(), time["window_ns"].sum()
    batch = (trace.meta.plan or {}).get("global_batch")
    return Numbers(
        num_ranks=trace.meta.num_ranks,
        step_ns=took_ns,
        samples_per_s=batch / (took_ns / 1e9) if batch and took_ns else None,
        working=worked_ns / window_ns if window_ns else None,
        bubble=idle.of_total if idle else None,
        exposed_sync_ns=sum(exposed_sync_ns(trace).values()) if took_ns else None,
        sync_bytes={axis: total["bytes"] for axis, total in analysis.sync_totals(trace).items() if total["bytes"]},
        memory_peak_bytes=max(analysis.memory_peaks(trace).values(), default=0) or None,
        losses=trace.meta.losses,
    )


_SCALING = {
    "num_ranks": pl.Int64,
    "step_ns": pl.Float64,
    "samples_per_s": pl.Float64,
    "speedup": pl.Float64,
    "ideal": pl.Float64,
    "efficiency": pl.Float64,
}


def scaling(traces: Sequence[Trace]) -> pl.DataFrame:
    """How throughput grows with ranks, a row per run that has a step time and a batch, fewest ranks first.

    Columns num_ranks, step_ns, samples_per_s, speedup (over the first row), ideal (the ranks' ratio), efficiency
    (speedup / ideal). 1 rank 100 samples/s, 4 ranks 320: speedup 3.2, ideal 4, efficiency 0.8.
    """
    found = sorted((numbers(trace) for trace in traces), key=lambda one: one.num_ranks)
    found = [one for one in found if one.samples_per_s]
    rows = []
    for one in found:
        speedup = one.samples_per_s / found[0].samples_per_s
        ideal = one.num_ranks / found[0].num_ranks
        rows.append((one.num_ranks, one.step_ns, one.samples_per_s, speedup, ideal, speedup / ideal))
    return pl.DataFrame(rows, schema=_SCALING, orient="row")


_DECIDE_LOSS = (
    "task", "layers", "width", "heads", "context", "global_batch", "optimizer", "lr", "seed", "dtype",
)  # fmt: skip
"""Fields of a plan that decide its losses: all others only spread the same training."""


def different_training(one: Trace, other: Trace) -> tuple[str, ...]:
    """Names of the fields that make these two different trainings; none: their losses must be equal."""
    plans = [trace.meta.plan or {} for trace in (one, other)]
    return tuple(name for name in _DECIDE_LOSS if plans[0].get(name) != plans[1].get(name))


def loss_difference(one: Trace, other: Trace) -> float | None:
    """The largest difference of the losses of the steps both did; None where there are none."""
    steps = min(len(one.meta.losses), len(other.meta.losses))
    if not steps:
        return None
    return float(np.max(np.abs(np.subtract(one.meta.losses[:steps], other.meta.losses[:steps]))))


@dataclass(frozen=True)
class Predicted:
    """A run's step beside what was computed for it from another run, both by the same clock ("wall" or "cpu")."""

    step_ns: float | None
    predicted_ns: float | None
    clock: str
    trace: Trace | None = None
    problem: str = ""  # why it cannot be predicted

    @property
    def error_percent(self) -> float | None:
        if not self.step_ns or self.predicted_ns is None:
            return None
        return 100 * (self.predicted_ns / self.step_ns - 1)


def predict_from(known: Trace, run: Trace) -> Predicted:
    """What `known` says about the plan of `run`, beside what that run took. A measured run on too few cores: by CPU."""
    clock = "wall" if (run.meta.plan or {}).get("pace") else usual_clock(run)
    try:
        plan = Plan.from_dict(run.meta.plan or {})
        found = replan(known, plan)
        shown = replay(run, Changes(device_time="cpu")) if clock == "cpu" else run
        return Predicted(step_ns(shown), step_ns(found), clock, found)
    except (ReplayError, PlanError) as error:
        return Predicted(_step_ns(run), None, clock, problem=str(error))


def _step_ns(trace: Trace) -> float | None:
    try:
        return step_ns(trace)
    except ReplayError:
        return None
