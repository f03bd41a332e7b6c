"""A schedule drawn as a trace, so that players and analysis can show what was never run. Schedule in, Trace out."""

from __future__ import annotations

from collections.abc import Sequence

from labkit import schedule
from labkit.mesh import Mesh
from labkit.plan import Plan
from labkit.replay.graph import ReplayError
from labkit.replay.moves import pipeline_moves
from labkit.replay.program import Program, play_program
from labkit.replay.writer import Issued, Writer
from labkit.schedule import Action, Durations, Schedule, check
from labkit.trace import Meta, Trace

_STAGE_KIND = {
    schedule.Kind.FORWARD: "stage_forward",
    schedule.Kind.BACKWARD: "stage_backward",
    schedule.Kind.BACKWARD_INPUT: "stage_backward_input",
    schedule.Kind.BACKWARD_WEIGHT: "stage_backward_weight",
}


def planned_trace(what: Schedule | Plan, durations: Durations | Sequence[Durations], *, hop_ns: float = 0.0) -> Trace:
    """One step of a schedule, or of a plan's pipeline, as a trace with source "planned".

    `durations` in ns, of one stage's action on one microbatch, one for all stages or one for each; `hop_ns` is what a
    message between ranks takes, and keeps neither rank busy. Times equal `schedule.simulate`. Raises ScheduleError for
    an order that cannot run, ReplayError for a plan without a pipeline.
    """
    order = _order(what)
    check(order)
    per_stage = [durations] * order.num_stages if isinstance(durations, Durations) else list(durations)
    if len(per_stage) != order.num_stages:
        raise ReplayError(
            f"{len(per_stage)} durations for {order.num_stages} stages: give one for each, or one for all"
        )
    if not 0 <= hop_ns < 2**60:
        raise ReplayError(f"hop_ns={hop_ns!r} is no duration: give a finite number of ns, 0 or more")
    plan = _plan(what, order)
    meta = Meta(source="planned", plan=plan, num_ranks=order.num_ranks, notes=_notes(order, hop_ns))
    return Trace(play_program(_program(order, per_stage, hop_ns)), meta)


def _order(what: Schedule | Plan) -> Schedule:
    if isinstance(what, Schedule):
        return what
    if what.pipeline is None:
        raise ReplayError("a plan with pp 1 has no schedule to draw: set pp 2 or more, or use replan with a trace")
    return what.pipeline


def _plan(what: Schedule | Plan, order: Schedule) -> dict[str, object]:
    """The plan of the one pipeline that is drawn. Of a schedule alone: what a reader needs of a plan."""
    if isinstance(what, Plan):
        return what.to_dict() | {"dp": 1, "tp": 1, "steps": 1}
    virtual = order.num_stages // order.num_ranks
    shape = {"pp": order.num_ranks, "dp": 1, "tp": 1, "virtual": virtual, "microbatches": order.num_microbatches}
    return {"task": "schedule", "schedule": order.name, "steps": 1} | shape


def _notes(order: Schedule, hop_ns: float) -> tuple[str, ...]:
    return (f"planned: {order.name} with set durations, messages take {hop_ns / 1e6:g} ms; nothing was run",)


def _program(order: Schedule, per_stage: Sequence[Durations], hop_ns: float) -> Program:
    writer = Writer(lambda axis, op, size, ranks: (0, round(hop_ns)))
    group = Mesh(pp=order.num_ranks).group("pp", 0)
    for rank in range(order.num_ranks):
        writer.begin_rank(rank)
        step = writer.open("step")
        _write_rank(writer, order, rank, per_stage, group)
        writer.close(step)
    return writer.program()


def _write_rank(
    writer: Writer, order: Schedule, rank: int, per_stage: Sequence[Durations], group: tuple[int, ...]
) -> None:
    issued: dict[tuple[str, Action], Issued] = {}
    for verb, action in pipeline_moves(order, rank):
        place = {"stage": action.stage, "microbatch": action.microbatch}
        if verb == "do":
            writer.span(_STAGE_KIND[action.kind], round(per_stage[action.stage].of(action.kind)), **place)
        elif verb in ("send", "recv"):
            other = order.receiver_of(action) if verb == "send" else order.sender_of(action)
            target = other if verb == "send" else action
            key = (action.kind == schedule.Kind.FORWARD, target.stage, action.microbatch)
            issue = writer.send if verb == "send" else writer.recv
            issued[verb, action] = issue(order.placement[other.stage], key, 0, group, **place)
        elif verb != "sum":
            writer.wait(issued.pop((verb.removeprefix("wait_"), action)))
