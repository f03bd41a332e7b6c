"""Before and after, side by side: a trace and what to change in, the new trace and the numbers that differ out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit.analysis import bubble
from labkit.plan import Plan
from labkit.replay.changes import Changes
from labkit.replay.graph import ReplayError
from labkit.replay.preview import read_schedule
from labkit.replay.replanned import replan, same_plan, usual_clock
from labkit.replay.replayed import exposed_sync_ns, on_axes_of, replay, step_ns
from labkit.replay.rescheduled import reschedule
from labkit.schedule import SCHEDULES
from labkit.trace import Trace


@dataclass(frozen=True)
class WhatIf:
    """A captured run and what became of it."""

    before: Trace
    after: Trace
    changes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """What `labkit replay --json` prints. Times in ns; bubble and sync of a rank and step."""
        before, after = _numbers(self.before), _numbers(self.after)
        return {
            "kind": self.after.meta.source,
            "changes": list(self.changes),
            "before": before,
            "after": after,
            "step_ns": after["step_ns"],
            "step_ns_before": before["step_ns"],
            "speedup": before["step_ns"] / after["step_ns"] if after["step_ns"] else None,
            "plan": self.after.meta.plan,
            "notes": list(self.after.meta.notes),
        }

    def to_text(self) -> str:
        """The same for reading."""
        before, after = _numbers(self.before), _numbers(self.after)
        lines = [
            f"{self.before.title}  ->  {self.after.title}",
            f"  changed: {', '.join(self.changes) or 'nothing'}",
            f"  step {_ms(before['step_ns'])} -> {_ms(after['step_ns'])}",
        ]
        if before["bubble_fraction"] is not None or after["bubble_fraction"] is not None:
            shares = [_percent(numbers["bubble_fraction"]) for numbers in (before, after)]
            lines.append(f"  bubble of total time {shares[0]} -> {shares[1]}")
        for axis in sorted(before["exposed_sync_ns"] | after["exposed_sync_ns"]):
            waits = [_ms(numbers["exposed_sync_ns"].get(axis, 0.0)) for numbers in (before, after)]
            lines.append(f"  blocked by {axis} syncs, per rank and step: {waits[0]} -> {waits[1]}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.after.meta.notes)])


def what_if(
    trace: Trace, changes: Changes, plan_changes: Mapping[str, Any] | None = None, device_time: str | None = None
) -> WhatIf:
    """Replay a trace under `changes`; with `plan_changes` (dp, schedule ...), turn it into that plan first.

    A new plan is compared on one clock: where its durations are CPU times, `before` is the captured run by CPU time.
    """
    if not plan_changes:
        return WhatIf(trace, replay(trace, changes), on_axes_of(trace, changes).words())
    if trace.meta.plan is None:
        raise ReplayError(
            "the trace holds no plan, so it cannot be turned into another one: change its links or speeds"
        )
    plan_changes = _with_order(plan_changes)
    if trace.meta.source == "planned":
        return _rescheduled(trace, changes, plan_changes)
    if trace.meta.plan.get("task") == "gpt":
        raise ReplayError(
            "labkit predict computed this trace from a model's sizes, and it holds no layers to make another plan of: "
            f"predict it again with {', '.join(f'--{name} {value}' for name, value in plan_changes.items())}"
        )
    old = Plan.from_dict(trace.meta.plan)
    most = max(old.max_ranks, 1)
    for axis in ("dp", "tp", "pp"):
        most *= max(1, int(plan_changes.get(axis, 1)))
    link = {"link": dict(old.link or {}) | dict(changes.link)} if changes.link else {}
    plan = same_plan(old, **plan_changes, **link, max_ranks=most)
    after = replan(trace, plan, device_time=device_time)
    changes = on_axes_of(after, changes)
    before = trace
    if not plan.pace and (device_time or usual_clock(trace)) == "cpu":
        before = replay(trace, Changes(device_time="cpu"))
        after = after.with_meta(notes=(*after.meta.notes, _ONE_CLOCK))
        changes = replace(changes, device_time="wall")
    rest = replace(changes, link={}, device_time="wall")
    if rest != Changes():
        after = _replayed(after, rest)
    shown = ["schedule" if name == "order" else name for name in plan_changes]
    words = [f"{name} {getattr(old, name)} -> {getattr(plan, name)}" for name in shown]
    if old.order is not None and plan.order is None and "schedule" not in shown:
        words.append(f"schedule {old.schedule} -> {plan.schedule}")
    return WhatIf(before, after, (*words, *changes.words()))


def _rescheduled(trace: Trace, changes: Changes, plan_changes: Mapping[str, Any]) -> WhatIf:
    """A drawn schedule has no machine and no layers: only its order of work can change, then the conditions."""
    after = reschedule(trace, plan_changes)
    old, new = trace.meta.plan, after.meta.plan
    names = ("schedule", "microbatches", "virtual")
    words = [f"{name} {old.get(name)} -> {new[name]}" for name in names if old.get(name) != new[name]]
    changes = on_axes_of(after, changes)
    return WhatIf(trace, after if changes == Changes() else _replayed(after, changes), (*words, *changes.words()))


_ONE_CLOCK = "what it is compared with is the captured run by CPU time too, not by the clock"


def _with_order(plan_changes: Mapping[str, Any]) -> dict[str, Any]:
    """A schedule given as a file is an order of one's own."""
    named = plan_changes.get("schedule")
    if named is None or named in SCHEDULES or not Path(named).suffix:
        return dict(plan_changes)
    order = read_schedule(named)
    rest = {name: value for name, value in plan_changes.items() if name != "schedule"}
    return rest | {"order": order.to_text(), "pp": order.num_ranks}


def _replayed(predicted: Trace, changes: Changes) -> Trace:
    """A predicted trace under further changes is still a prediction, a planned one planned."""
    result = replay(predicted, changes)
    return result.with_meta(source=predicted.meta.source, notes=(*predicted.meta.notes, *result.meta.notes))


def _numbers(trace: Trace) -> dict[str, Any]:
    idle = bubble(trace)
    return {
        "step_ns": step_ns(trace),
        "bubble_fraction": idle.of_total if idle else None,
        "bubble_of_ideal": idle.of_ideal if idle else None,
        "exposed_sync_ns": exposed_sync_ns(trace),
    }


def _ms(value_ns: float) -> str:
    return f"{value_ns / 1e6:.2f} ms"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.1%}"
