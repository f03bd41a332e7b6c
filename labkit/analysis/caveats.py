"""What a reader must know before trusting a trace's times.

In: a Trace. Out: sentences.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from labkit.event import STAGE_KINDS, Kind
from labkit.link import as_link, link_seconds
from labkit.pace import CARRIED_NS, CARRIED_OPERATIONS, as_pace
from labkit.trace import Trace


def notes(trace: Trace) -> tuple[str, ...]:
    """What a reader must know before trusting the times."""
    found = [_missing_note(trace), _dropped_note(trace), _cores_note(trace), *_emulation_notes(trace)]
    return tuple(note for note in found if note)


def all_notes(trace: Trace) -> list[str]:
    """What its run or file said, and what its events show, each once: what goes under every table and text."""
    return list(dict.fromkeys((*trace.meta.notes, *notes(trace))))


_MOST_NAMED = 8
"""Missing ranks that a note names."""


def _missing_note(trace: Trace) -> str | None:
    """Declared ranks without any event. Imported files number ranks as their job did: there the importer says it."""
    present = set(trace.events["rank"].unique().to_list())
    missing = sorted(set(range(trace.meta.num_ranks)) - present)
    if not missing or trace.meta.source == "imported":
        return None
    if not present:
        return "the trace holds no event, so nothing can be measured: record 'compute' and 'sync'"
    named = ", ".join(map(str, missing[:_MOST_NAMED])) + (", ..." if len(missing) > _MOST_NAMED else "")
    return (
        f"{len(missing)} of {trace.meta.num_ranks} ranks are missing from the trace ({named}): "
        f"numbers are of the others, and waits for the missing cannot be told"
    )


def _dropped_note(trace: Trace) -> str | None:
    dropped = trace.meta.dropped_events
    return f"{dropped:,} events came after the limit and are missing: raise max_events" if dropped else None


def _cores_note(trace: Trace) -> str | None:
    meta = trace.meta
    if meta.source != "measured" or meta.num_ranks <= meta.num_cores or not meta.num_cores:
        return None
    return (
        f"{meta.num_ranks} ranks shared {meta.num_cores} cores: measured times include waiting for a core; "
        f"CPU times (the column cpu_ns) do not, and a paced run needs no core"
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
        work = trace.of(*STAGE_KINDS).with_columns(_set_ns(plan).alias("set_ns"))
        found = [_emulated_device_note(work), _late_note(work, "operations", CARRIED_OPERATIONS, plan, CARRIED_NS)]
    else:
        found = [_late_note(_with_link_times(trace.of("sync"), plan), "syncs", _SLOW_SHARE, plan)]
    return [note for note in found if note]


def _set_ns(plan: dict[str, Any]) -> pl.Expr:
    """The duration that the plan sets for each kind of stage event on its rank."""
    pace = as_pace(plan["pace"]).of_stage(plan.get("virtual") or 1)
    seconds = {
        Kind.STAGE_FORWARD: pace.forward_s,
        Kind.STAGE_BACKWARD: pace.backward_s,
        Kind.STAGE_BACKWARD_INPUT: pace.backward_input_s,
        Kind.STAGE_BACKWARD_WEIGHT: pace.backward_weight_s,
    }
    set_ns = {str(kind): int(value * plan.get("time_scale", 1.0) * 1e9) for kind, value in seconds.items()}
    own_ns = pl.col("kind").cast(pl.String).replace_strict(set_ns, return_dtype=pl.Int64)
    slow = {int(rank): factor for rank, factor in (plan.get("slow") or {}).items()}
    return own_ns * pl.col("rank").replace_strict(slow, default=1.0, return_dtype=pl.Float64) if slow else own_ns


def _with_link_times(syncs: pl.DataFrame, plan: dict[str, Any]) -> pl.DataFrame:
    """Each sync with `set_ns`, what its axis' link takes for it."""
    kinds = syncs.select("axis", "op", "size_bytes", pl.col("group").list.len().alias("num_ranks")).unique()
    times = [_link_ns(plan, **kind) for kind in kinds.to_dicts()]
    syncs = syncs.with_columns(pl.col("group").list.len().alias("num_ranks"))
    return syncs.join(
        kinds.with_columns(pl.Series("set_ns", times, dtype=pl.Int64)),
        on=["axis", "op", "size_bytes", "num_ranks"],
        nulls_equal=True,
    )


def _link_ns(plan: dict[str, Any], axis: str | None, op: str, size_bytes: int | None, num_ranks: int | None) -> int:
    link = (plan.get("link") or {}).get((axis or "").partition("+")[0])
    if link is None or None in (op, size_bytes, num_ranks):
        return 0
    return int(sum(link_seconds(as_link(link), op, size_bytes, num_ranks)) * plan.get("time_scale", 1.0) * 1e9)


def _emulated_device_note(work: pl.DataFrame) -> str | None:
    late = work.filter(pl.col("set_ns") > 0)["late_ns"].drop_nulls()
    if late.is_empty():
        return None
    return (
        f"times are those of an emulated device that keeps the set pace; the real work behind them was late by "
        f"{late.median() / 1e6:.1f} ms (median) to {late.max() / 1e6:.1f} ms (most)"
    )


def _late_note(rows: pl.DataFrame, what: str, tolerance: float, plan: dict[str, Any], least_ns: int = 0) -> str | None:
    """A note if more than a few rows are late by more than `tolerance` times their `set_ns`, and `least_ns`."""
    rows = rows.filter(pl.col("late_ns").is_not_null() & pl.col("step").is_not_null() & (pl.col("set_ns") > 0))
    late = rows.filter((pl.col("late_ns") > tolerance * pl.col("set_ns")) & (pl.col("late_ns") > least_ns))
    if late.height <= _TOLERATED * rows.height:
        return None
    needed = late.select((1 + pl.col("late_ns") / pl.col("set_ns")).quantile(0.9)).item()
    scale = plan.get("time_scale", 1.0) * next((s for s in _SCALES if s >= needed), _SCALES[-1])
    return (
        f"{late.height} of {rows.height} {what} took longer here than set, "
        f"by up to {late['late_ns'].max() / 1e6:.1f} ms: "
        f"this machine cannot emulate so fast; set time_scale to {scale:g}"
    )
