"""Questions about a trace, each answered by a number or a table. Pure: no process, no torch.

In: a Trace. Out: numbers, or polars tables. Works on traces of any source.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

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
    mesh = trace.meta.mesh
    pipeline = {rank: i for i, group in enumerate(mesh.groups("pp")) for rank in group}
    work = trace.of(*STAGE_KINDS).with_columns(
        pl.col("rank").replace_strict(pipeline, default=-1).alias("pipeline"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("busy_ns"),
    )
    return (
        work.group_by("step", "pipeline")
        .agg(
            (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("window_ns"),
            pl.col("busy_ns").sum(),
            pl.col("rank").n_unique().alias("ranks"),
        )
        .filter(pl.col("window_ns") > 0)
        .sort("step", "pipeline")
    )


def counts(trace: Trace) -> dict[str, int]:
    """Number of events of each kind, over all ranks and steps."""
    table = trace.events.group_by("kind").len()
    return dict(sorted(zip(table["kind"].cast(pl.String), table["len"].to_list(), strict=True)))


def syncs_per_step(trace: Trace) -> pl.DataFrame:
    """For each axis and op: operations and bytes of one rank in one step.

    Columns axis, op, count, bytes: the median over steps of each rank, averaged over ranks (the ends of a pipeline
    send less than its middle). A message counts on both of its ranks. Set-up is left out.
    """
    syncs = trace.of("sync").filter(pl.col("step").is_not_null())
    num_steps, num_ranks = syncs["step"].n_unique(), trace.meta.num_ranks
    per_step = syncs.group_by("axis", "op", "rank", "step").agg(pl.len().alias("count"), pl.col("size_bytes").sum())
    per_rank = per_step.group_by("axis", "op", "rank").agg(
        _median_with_absent("count", num_steps), _median_with_absent("size_bytes", num_steps)
    )
    return (
        per_rank.group_by("axis", "op")
        .agg(pl.col("count").sum() / num_ranks, (pl.col("size_bytes").sum() / num_ranks).alias("bytes"))
        .sort("axis", "op")
    )


def _median_with_absent(column: str, num_steps: int) -> pl.Expr:
    """Median over all steps, those without a row counting 0."""
    values = pl.col(column)
    return values.sort().reverse().get(num_steps // 2, null_on_oob=True).fill_null(0).cast(pl.Float64).alias(column)


def sync_totals(trace: Trace) -> dict[str, dict[str, float]]:
    """`syncs_per_step` summed over ops: {"dp": {"count": 1.0, "bytes": 51240.0}}."""
    table = syncs_per_step(trace).group_by("axis").agg(pl.col("count").sum(), pl.col("bytes").sum()).sort("axis")
    return {row["axis"]: {"count": row["count"], "bytes": row["bytes"]} for row in table.to_dicts()}


def memory_peaks(trace: Trace) -> dict[int, int]:
    """Most bytes each rank held at once: parameters, gradients, optimizer state and activations."""
    columns = ("param_bytes", "grad_bytes", "optimizer_bytes", "activation_bytes")
    held = trace.events.with_columns(pl.sum_horizontal([pl.col(name).fill_null(0) for name in columns]).alias("held"))
    table = held.group_by("rank").agg(pl.col("held").max()).sort("rank")
    return dict(zip(table["rank"], table["held"], strict=True))


def unmatched_syncs(trace: Trace) -> pl.DataFrame:
    """Syncs that do not have their counterparts: a collective missing on a member, a send without its receive.

    Collectives match by (group, sequence number), messages by (sender, receiver, sequence number). Empty if all do.
    """
    syncs = trace.of("sync")
    is_message = pl.col("op").is_in(["send", "recv"])
    collectives = syncs.filter(~is_message).with_columns(pl.len().over("group", "seq", "op").alias("found"))
    lonely = collectives.filter(pl.col("found") % pl.col("group").list.len() != 0).drop("found")
    sender = pl.when(pl.col("op") == "send").then("rank").otherwise("peer")
    receiver = pl.when(pl.col("op") == "send").then("peer").otherwise("rank")
    messages = syncs.filter(is_message).with_columns(sender.alias("from"), receiver.alias("to"))
    pair = ("group", "from", "to", "seq")
    odd = messages.filter((pl.len().over(pair) % 2 != 0) | (pl.col("op").n_unique().over(pair) != 2))
    return pl.concat([lonely, odd.drop("from", "to")])


def notes(trace: Trace) -> tuple[str, ...]:
    """What a reader must know before trusting the times."""
    found = [_dropped_note(trace), _cores_note(trace), *_emulation_notes(trace)]
    return tuple(note for note in found if note)


def _dropped_note(trace: Trace) -> str | None:
    dropped = trace.meta.dropped_events
    return f"{dropped:,} events came after the limit and are missing: raise max_events" if dropped else None


def _cores_note(trace: Trace) -> str | None:
    meta = trace.meta
    if meta.source != "measured" or meta.num_ranks <= meta.num_cores or not meta.num_cores:
        return None
    return (
        f"{meta.num_ranks} ranks shared {meta.num_cores} cores: measured times include waiting for a core; "
        f"cpu_ns does not, and a paced run needs no core"
    )


_HIDDEN_SHARE = 0.5
"""Lateness of a paced operation, as a share of its duration, that the next one hides (engine.device does so)."""

_SLOW_SHARE = 0.05
"""A sync on an emulated link counts as slow when the real one took this much longer than set."""

_TOLERATED = 0.02
"""Share of operations that may be late before the trace says so."""

_SCALES = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**4, 10**5, 10**6)


def _emulation_notes(trace: Trace) -> list[str]:
    """Whether this machine kept the set times."""
    if trace.meta.source != "paced":
        return []
    plan = trace.meta.plan or {}
    if plan.get("pace"):
        found = [_emulated_device_note(trace), _late_note(trace.of(*STAGE_KINDS), "operations", _HIDDEN_SHARE, plan)]
    else:
        found = [_late_note(trace.of("sync"), "syncs", _SLOW_SHARE, plan)]
    return [note for note in found if note]


def _emulated_device_note(trace: Trace) -> str | None:
    late = trace.of(*STAGE_KINDS)["late_ns"].drop_nulls()
    if late.is_empty():
        return None
    return (
        f"times are those of an emulated device that keeps the set pace; the real work behind them was late by "
        f"{late.median() / 1e6:.1f} ms (median) to {late.max() / 1e6:.1f} ms (most)"
    )


def _late_note(rows: pl.DataFrame, what: str, tolerance: float, plan: dict) -> str | None:
    took = pl.col("end_ns") - pl.col("start_ns")
    rows = rows.filter(pl.col("late_ns").is_not_null() & pl.col("step").is_not_null())
    late = rows.filter(pl.col("late_ns") > tolerance * (took - pl.col("late_ns")).clip(1))
    if late.height <= _TOLERATED * rows.height:
        return None
    needed = late.select((took / (took - pl.col("late_ns")).clip(1)).quantile(0.9)).item()
    scale = plan.get("time_scale", 1.0) * next((s for s in _SCALES if s >= needed), _SCALES[-1])
    return (
        f"{late.height} of {rows.height} {what} took longer here than set, by up to {late['late_ns'].max() / 1e6:.1f} ms: "
        f"this machine cannot emulate so fast; set time_scale to {scale:g}"
    )
