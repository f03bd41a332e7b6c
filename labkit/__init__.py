"""labkit: see distributed training happen, from real runs.

    plan = labkit.Plan(pp=4, layers=8, microbatches=8, global_batch=64)
    trace = labkit.run(plan, verify=True)
    labkit.timeline(trace)

Names load when they are first used, so that `import labkit` brings in neither torch nor plotly.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Link": "link",
    "Meta": "trace",
    "Pace": "pace",
    "Plan": "plan",
    "PlanError": "plan",
    "RunCancelled": "watch",
    "RunError": "watch",
    "Task": "engine.tasks",
    "Trace": "trace",
    "all_reduce": "view.all_reduce",
    "ask": "view.ask",
    "batch_figure": "view.batch",
    "batch_flow": "view.batch_flow",
    "breakdown_figure": "view.figures",
    "bubble": "analysis",
    "close": "lab",
    "describe": "report",
    "knobs": "lesson",
    "link_players": "view.player",
    "load": "trace",
    "loss_figure": "view.figures",
    "matrix_shard": "view.matrix_shard",
    "memory_figure": "view.figures",
    "memory_lanes": "view.memory_lanes",
    "mesh_grid": "view.mesh_grid",
    "own_task": "engine.tasks",
    "panel": "lab",
    "recall": "lesson",
    "run": "lab",
    "sync_figure": "view.figures",
    "timeline": "view.timeline",
    "warm_up": "lab",
}
"""Public names and the modules they live in."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"labkit has no {name!r}: it has {', '.join(__all__)}")
    value = getattr(import_module(f"labkit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
