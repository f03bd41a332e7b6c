"""What one captured run teaches about durations: a Trace in, the durations of another plan out.

Where the new plan sets a pace, its durations are set: per rank and microbatch, shared by its stages (see Pace).
Elsewhere a layer's own work, less its waits, grows with the samples of a microbatch and shrinks with tp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit.event import LAYER_KINDS, STAGE_KINDS, Kind
from labkit.link import link_seconds
from labkit.plan import Plan
from labkit.replay import program as p
from labkit.replay.captured import captured
from labkit.replay.changes import Changes
from labkit.replay.graph import COLLECTIVE, RECV, ReplayError
from labkit.replay.shapes import layer_names
from labkit.trace import Trace

FORWARD, BACKWARD, INPUT, WEIGHT = "forward", "backward", "backward_input", "backward_weight"


@dataclass(frozen=True)
class StepCosts:
    """Durations of one plan, in ns of its trace."""

    layer_ns: dict[tuple[str, str], float]  # (layer, part) -> of one microbatch; empty parts follow from the others
    stage_ns: dict[str, float]  # part -> set duration of a stage's work on one microbatch; wins over its layers
    loss_ns: float
    optimizer_ns: float
    load_ns: float
    zero_grad_ns: float
    before_optimizer_ns: float  # own work of a step outside all spans
    between_steps_ns: float
    sync_ns: (
        dict[str, float] | None
    )  # per axis, of an operation of unknown link; None: syncs follow `links` or are free
    notes: tuple[str, ...]

    def part_ns(self, layer: str, part: str) -> float:
        """One layer's forward, backward, or half of a backward."""
        known = self.layer_ns
        if (layer, part) in known:
            return known[layer, part]
        if part == BACKWARD:
            return known.get((layer, INPUT), 0.0) + known.get((layer, WEIGHT), 0.0)
        return known.get((layer, BACKWARD), 0.0) / 2


def step_costs(trace: Trace, old: Plan, new: Plan, device_time: str) -> StepCosts:
    """The durations of `new`, learned from `trace`, which ran `old`."""
    found = captured(trace, Changes(device_time=device_time))
    rows = _with_own(found.program)
    stage_ns = _set_durations(new)
    _check_known(old, new, stage_ns)
    optimizer_ns = new.time_scale * new.pace.optimizer_s * 1e9 if new.pace and new.pace.optimizer_s else None
    sync_ns, notes = _sync_costs(found.program, new)
    return StepCosts(
        layer_ns=_layer_costs(rows, old, new, trace),
        stage_ns=stage_ns,
        loss_ns=0.0 if new.pace else _median(rows, Kind.LOSS) * _samples(new) / _samples(old),
        optimizer_ns=optimizer_ns if optimizer_ns is not None else _median(rows, Kind.OPTIMIZER) * _held(old, new),
        load_ns=_median(rows, Kind.LOAD),
        zero_grad_ns=_median(rows, Kind.ZERO_GRAD),
        before_optimizer_ns=_outside_spans(rows),
        between_steps_ns=_between_steps(found.program, rows),
        sync_ns=sync_ns,
        notes=(*found.repairs, *notes),
    )


def sync_cost(plan: Plan, costs: StepCosts, axis: str, op: str, size_bytes: int, num_ranks: int) -> tuple[int, int]:
    """(transfer, latency) in ns of one operation of the new plan."""
    link = (plan.link or {}).get(axis.partition("+")[0])
    if link is not None:
        latency_s, transfer_s = link_seconds(link, op, size_bytes, num_ranks)
        return int(transfer_s * plan.time_scale * 1e9), int(latency_s * plan.time_scale * 1e9)
    known = costs.sync_ns or {}
    return 0, int(known.get(axis, max(known.values(), default=0.0)))


def _with_own(program: p.Program) -> pl.DataFrame:
    """The rows with `own_ns`: what the rank worked by itself inside each."""
    marks = program.marks
    total = np.cumsum(marks.own_ns)
    own = np.zeros(program.rows.height, np.int64)
    starts, ends = marks.role == p.START, marks.role == p.END
    own[marks.row[ends]] += total[ends]
    own[marks.row[starts]] -= total[starts]
    return program.rows.with_columns(pl.Series("own_ns", own))


def _median(rows: pl.DataFrame, kind: str) -> float:
    return float(rows.filter(pl.col("kind") == kind)["own_ns"].median() or 0.0)


def _samples(plan: Plan) -> int:
    """Samples of one microbatch."""
    return plan.replica_batch // plan.microbatches


def _held(old: Plan, new: Plan) -> float:
    """How much more of the model a rank of the new plan updates; with ZeRO replicas share that out."""
    shares = [plan.pp * plan.tp * (plan.dp if plan.zero else 1) for plan in (old, new)]
    return shares[0] / shares[1]


def _set_durations(new: Plan) -> dict[str, float]:
    pace = new.stage_pace
    if pace is None:
        return {}
    seconds = {
        FORWARD: pace.forward_s,
        BACKWARD: pace.backward_s,
        INPUT: pace.backward_input_s,
        WEIGHT: pace.backward_weight_s,
    }
    return {part: value * new.time_scale * 1e9 for part, value in seconds.items() if value}


def _check_known(old: Plan, new: Plan, stage_ns: dict[str, float]) -> None:
    """A set duration of the captured run says nothing about the machine."""
    pace = old.pace
    unknown = [part for part in (FORWARD, BACKWARD) if pace and getattr(pace, f"{part}_s") and part not in stage_ns]
    if unknown:
        raise ReplayError(
            f"the captured run was paced, so it does not tell how long {unknown[0]} takes here: give the new plan a "
            f"pace, e.g. pace={str(pace)!r}, or capture an unpaced run"
        )


def _layer_costs(rows: pl.DataFrame, old: Plan, new: Plan, trace: Trace) -> dict[tuple[str, str], float]:
    """Median own work of every layer and part, for a microbatch of the new plan."""
    kinds = [str(kind) for kind in LAYER_KINDS if kind not in (Kind.LOSS, Kind.RECOMPUTE)]
    layers = rows.filter(pl.col("kind").is_in(kinds) & pl.col("layer").is_not_null())
    if layers.is_empty() and not rows.filter(pl.col("kind").is_in([str(kind) for kind in STAGE_KINDS])).is_empty():
        raise ReplayError(
            "the trace holds stages but no layers: record 'compute' with layers to turn it into another plan"
        )
    factor = _samples(new) / _samples(old) * old.tp / new.tp
    table = layers.group_by("layer", "kind").agg(pl.col("own_ns").median())
    known = {(layer, str(kind)): own * factor for layer, kind, own in table.iter_rows()}
    missing = [name for name in layer_names(new, trace.meta.layers) if (name, FORWARD) not in known]
    if missing:
        raise ReplayError(f"the trace holds no forward of layer {missing[0]}: capture a run of the same model")
    return known


def _outside_spans(rows: pl.DataFrame) -> float:
    """Own work of a step that is in none of its parts: the lower quartile, since a busy machine only ever adds."""
    parts = (Kind.ZERO_GRAD, Kind.LOSS, Kind.OPTIMIZER, *STAGE_KINDS)
    inside = pl.col("own_ns").filter(pl.col("kind").is_in([str(kind) for kind in parts])).sum()
    loaded = pl.col("own_ns").filter(pl.col("kind") == Kind.LOAD).max().fill_null(0)
    whole = pl.col("own_ns").filter(pl.col("kind") == Kind.STEP).sum()
    steps = rows.group_by("rank", "step").agg((whole - inside - loaded).alias("left_ns"))
    return max(0.0, float(steps["left_ns"].quantile(0.25, "nearest") or 0.0))


def _between_steps(program: p.Program, rows: pl.DataFrame) -> float:
    """Own work from the end of a step to the start of the next: the mean over ranks and steps."""
    steps = rows.filter(pl.col("kind") == Kind.STEP)
    gaps = steps.height - len(program.start_ns)
    return max(0.0, float(program.marks.own_ns.sum() - steps["own_ns"].sum()) / gaps) if gaps else 0.0


def _sync_costs(program: p.Program, new: Plan) -> tuple[dict[str, float] | None, tuple[str, ...]]:
    """Typical captured cost of an operation per axis, for axes without a link; none in a paced plan."""
    if new.pace:
        return None, ()
    issues = program.marks.role == p.ISSUE
    sync = program.marks.sync[issues]
    costs = np.array(program.syncs.transfer_ns)[sync] + np.array(program.syncs.latency_ns)[sync]
    kind = np.array(program.syncs.kind)[sync]
    if not len(sync):
        return None, ("no sync was captured, so syncs without a link cost nothing here",)
    table = pl.DataFrame({"axis": program.rows["axis"].gather(program.marks.row[issues]), "cost": costs, "kind": kind})
    table = table.filter(pl.col("kind").is_in([COLLECTIVE, RECV])).group_by("axis").agg(pl.col("cost").median())
    note = "a sync without a link costs what the median sync of its axis took, whatever its size"
    return dict(table.iter_rows()), (note,)
