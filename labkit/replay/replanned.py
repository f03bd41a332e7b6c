"""One captured run turned into another plan: a Trace and a Plan in, the Trace that plan would leave out."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Literal

from labkit.plan import Plan
from labkit.replay.graph import ReplayError
from labkit.replay.learned import StepCosts, step_costs
from labkit.replay.program import play_program
from labkit.replay.replayed import step_ns
from labkit.replay.shapes import layer_names
from labkit.replay.stepplan import plan_program
from labkit.trace import Meta, Trace

_FREE = (
    "dp", "tp", "pp", "schedule", "order", "microbatches", "virtual", "split", "link", "pace", "time_scale",
    "bucket_mb", "steps", "global_batch", "recompute", "lr", "seed", "optimizer", "record", "value_limit_bytes",
    "max_events", "max_ranks", "tensor", "zero", "sequence_parallel", "offload", "grad_sync",
)  # fmt: skip
"""Fields of a plan that may differ from the captured one; the model may not."""


def replan(trace: Trace, plan: Plan, *, device_time: str | None = None) -> Trace:
    """What `plan` would take, with the durations that `trace` taught. Source "predicted": nothing of it was run.

    Set durations of a pace hold as they stand (per rank and microbatch); learned ones go with the samples of a
    microbatch, the layers of a stage and 1 / tp. Links as the plan gives them; without one, paced syncs cost nothing
    and measured ones what they took. device_time: "wall" or "cpu"; without it, cpu where a measured run had more ranks
    than cores. Raises ReplayError for what cannot be known from the trace.
    """
    if trace.meta.plan is None:
        raise ReplayError("the trace holds no plan, so it cannot be turned into another one: use replay")
    old = Plan.from_dict(trace.meta.plan)
    _check_same_model(old, plan)
    _check_modelled(plan)
    device_time = device_time or usual_clock(trace)
    costs = step_costs(trace, old, plan, device_time)
    layers = layer_names(plan, trace.meta.layers)
    events = play_program(plan_program(plan, costs, layers))
    meta = Meta(
        source="predicted",
        plan=plan.to_dict(),
        num_ranks=plan.num_ranks,
        layers=layers,
        versions=trace.meta.versions,
        num_cores=trace.meta.num_cores,
        notes=_notes(trace, plan, costs, device_time),
    )
    result = Trace(events, meta)
    return result.with_meta(seconds={"step_median": step_ns(result) / 1e9})


def usual_clock(trace: Trace) -> Literal["wall", "cpu"]:
    """The clock that durations are read from: CPU time where a measured run had more ranks than cores."""
    crowded = trace.meta.source == "measured" and trace.meta.num_ranks > (trace.meta.num_cores or 1)
    return "cpu" if crowded else "wall"


def _notes(trace: Trace, plan: Plan, costs: StepCosts, device_time: str) -> tuple[str, ...]:
    how = "set by the plan's pace" if plan.pace else f"learned from it ({device_time} time)"
    return (f"predicted from a run of {trace.title}: durations {how}, order of work by the schedule", *costs.notes)


def _check_same_model(old: Plan, new: Plan) -> None:
    for field in fields(Plan):
        name = field.name
        if name not in _FREE and getattr(old, name) != getattr(new, name):
            raise ReplayError(
                f"{name} was {getattr(old, name)!r} in the captured run and is {getattr(new, name)!r} in the new plan: "
                f"durations are learned from the same model; change only {', '.join(_FREE[:8])}"
            )


def _check_modelled(plan: Plan) -> None:
    why = ""
    if plan.zero > 1:
        why = f"zero {plan.zero} gathers and frees parameters as torch's FSDP2 sees fit, which"
    elif plan.grad_sync != "engine":
        why = f"grad_sync {plan.grad_sync!r} sends its own messages, whose order"
    if why:
        raise ReplayError(f"{why} is not modelled here: run the plan, and use replay for other links and speeds")
    if plan.task == "own" and (plan.link or plan.zero):
        raise ReplayError(
            "the sizes of your own task's tensors are not known here: leave out link and zero, or run the plan"
        )


def same_plan(plan: Plan, **changes: object) -> Plan:
    """The plan with some fields changed, and those that follow from them (schedule, microbatches, virtual) anew."""
    follow = {"schedule": plan.schedule, "order": None, "microbatches": plan.microbatches, "virtual": plan.virtual}
    if changes.get("order") is not None:
        follow |= {"schedule": None, "microbatches": None, "virtual": None}
    elif plan.order is not None and not {"schedule", "pp", "microbatches", "virtual"} & set(changes):
        follow |= {"order": plan.order}
    elif changes.get("pp", plan.pp) == 1 or plan.order is not None:
        follow |= {"schedule": None, "virtual": None}
    elif changes.get("schedule", plan.schedule) != plan.schedule:
        follow["virtual"] = None
    if {"pp", "virtual", "schedule", "order", "layers"} & set(changes):
        follow["split"] = None
    return replace(plan, **(follow | changes))
