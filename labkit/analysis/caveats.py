"""What a reader must know before trusting a trace's times.

In: a Trace. Out: sentences.
"""

from __future__ import annotations

import polars as pl

from labkit.event import STAGE_KINDS
from labkit.pace import CARRIED_OPERATIONS
from labkit.trace import Trace


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
        found = [
            _emulated_device_note(trace),
            _late_note(trace.of(*STAGE_KINDS), "operations", CARRIED_OPERATIONS, plan),
        ]
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
        f"{late.height} of {rows.height} {what} took longer here than set, "
        f"by up to {late['late_ns'].max() / 1e6:.1f} ms: "
        f"this machine cannot emulate so fast; set time_scale to {scale:g}"
    )
