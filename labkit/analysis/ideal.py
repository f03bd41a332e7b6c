"""The bubble that a run's schedule cannot avoid, to hold beside the one it had.

In: a Trace whose metadata tell its plan. Out: a share of the total time.
"""

from __future__ import annotations

from labkit import schedule
from labkit.trace import Trace


def ideal_bubble(trace: Trace) -> float | None:
    """Idle share of the total time if messages were free and all stages alike; None without a published schedule.

    Of GPipe and 1F1B (p - 1) / (m + p - 1). A paced run's own durations are taken, else a backward of two forwards.
    """
    plan = trace.meta.plan or {}
    if plan.get("schedule") not in schedule.SCHEDULES or not plan.get("microbatches"):
        return None
    shape = (plan["pp"], plan["microbatches"], plan.get("virtual"))
    return schedule.ideal_bubble(plan["schedule"], *shape, _durations(plan.get("pace") or {}))


def _durations(pace: dict[str, float]) -> schedule.Durations | None:
    """The set durations of a paced run: their ratios matter, so those of a rank serve for its stages."""
    names = ("forward", "backward_input", "backward_weight")
    parts = {name: pace.get(f"{name}_s") for name in names}
    return schedule.Durations(**parts) if all(parts.values()) else None
