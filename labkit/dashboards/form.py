"""What a form of the dashboards does: its values as a plan, that plan's run, the nearest plan that can run, presets.

In: form values. Out: plans and traces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from labkit import link, rules, schedule
from labkit.lab import run, warm_up
from labkit.nearest import nearest_legal
from labkit.plan import Plan, PlanError
from labkit.task import TASKS
from labkit.trace import Trace

_PIPELINE = {"pp": 4, "layers": 8, "microbatches": 8, "paced": True}
_REPLICAS = {"pp": 1, "layers": 8, "microbatches": 1}

PRESETS: dict[str, dict[str, Any]] = {
    "Pipeline of 4": _PIPELINE | {"schedule": "1f1b"},
    "Zero bubble": _PIPELINE | {"schedule": "zbv"},
    "4 replicas": _REPLICAS | {"dp": 4, "paced": True},
    "2 x 2: tensor and data": _REPLICAS | {"dp": 2, "tp": 2, "layers": 4, "paced": False},
}
"""Forms to start from, by the name on their button: what differs from the form as it opens."""

MORE_PRESETS: dict[str, dict[str, Any]] = PRESETS | {
    "Ring, message by message": _REPLICAS
    | {"dp": 4, "layers": 2, "width": 16, "grad_sync": "ring", "paced": False, "value_limit_bytes": 65536},
    "Cut matrices": _REPLICAS | {"tp": 2, "layers": 4, "width": 16, "paced": False, "value_limit_bytes": 65536},
    "ZeRO 3": _REPLICAS | {"dp": 4, "zero": 3, "optimizer": "adam", "paced": False},
    "All three axes": {"dp": 2, "tp": 2, "pp": 2, "layers": 4, "microbatches": 4, "paced": False},
    "A slow network": _REPLICAS | {"dp": 4, "width": 256, "link": "eth1", "paced": True},
}


def panel() -> Any:
    """The form of a lesson: a plan, Run and Cancel, and what came of it in brief."""
    from labkit.view.controls import lab_panel

    warm_up()
    return lab_panel(run_values, plan_from, PRESETS, choices=choices(), nearest=nearest_values)


def plan_from(values: dict[str, Any]) -> Plan:
    """The plan that a form's values stand for."""
    from labkit.view.fields import plan_values

    return Plan.from_dict(plan_values(values))


def run_values(
    values: dict[str, Any],
    progress: Callable[..., None],
    cancelled: threading.Event,
    on_trace: Callable[[Trace], None] | None = None,
) -> Trace:
    """Run a form's plan, and the serial one to compare with."""
    told = {"on_progress": lambda now: now.tell(progress), "on_trace": on_trace}
    return run(plan_from(values), verify=True, cancelled=cancelled, **told)


def nearest_values(values: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """The form's values nearest to ones that cannot run, and what changes; None where nothing near can."""
    from labkit.view.fields import plan_values

    try:
        found = nearest_legal(plan_values(values))
    except (PlanError, TypeError, KeyError):
        return None
    return (values | found.changes, str(found)) if found else None


def choices() -> dict[str, list[str]]:
    """What the form's lists offer."""
    return {
        "task": [name for name in TASKS if name != "own"],
        "schedule": list(schedule.SCHEDULES),
        "link": list(link.PRESETS),
        **{name: list(rules.CHOICES[name]) for name in ("grad_sync", "tensor", "dtype")},
    }
