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
    "Fault": "faults",
    "Link": "link",
    "Meta": "trace",
    "Pace": "pace",
    "Plan": "plan",
    "PlanError": "plan",
    "RunCancelled": "watch",
    "RunError": "watch",
    "Task": "engine.tasks",
    "Trace": "trace",
    "accuracy_figure": "view.learning_figures",
    "all_reduce": "view.all_reduce",
    "all_reduce_figure": "view.sync_figures",
    "ask": "view.ask",
    "batch_figure": "view.batch",
    "batch_flow": "view.batch_flow",
    "breakdown_figure": "view.figures",
    "bubble": "analysis",
    "bubble_figure": "view.pipeline_figures",
    "close": "lab",
    "describe": "report",
    "dial": "lesson",
    "drift_figure": "view.sync_figures",
    "efficiency_figure": "view.run_figures",
    "export": "view.export",
    "exposure_figure": "view.link_figures",
    "fault_lab": "lesson",
    "findings": "view.findings",
    "fit_figure": "view.memory_figures",
    "held_figure": "view.memory_figures",
    "knobs": "lesson",
    "latency_figure": "view.traffic_figures",
    "link_line_figure": "view.link_figures",
    "link_players": "view.player",
    "load": "trace",
    "loss_figure": "view.figures",
    "loss_paths": "view.loss_paths",
    "matrix_shard": "view.matrix_shard",
    "memory_figure": "view.figures",
    "memory_lanes": "view.memory_lanes",
    "mesh_grid": "view.mesh_grid",
    "noise_figure": "view.learning_figures",
    "own_task": "engine.own",
    "panel": "dashboards",
    "place_work": "lesson",
    "published_figure": "view.prediction_figures",
    "recall": "lesson",
    "record": "engine.script",
    "replica_scene": "view.replicas",
    "run": "lab",
    "scaling_figure": "view.run_figures",
    "schedules_figure": "view.pipeline_figures",
    "score": "view.score",
    "spent_figure": "view.prediction_figures",
    "step_curve_figure": "view.link_figures",
    "step_figure": "view.step_figures",
    "survivors_figure": "view.survivors",
    "sync_count_figure": "view.traffic_figures",
    "sync_figure": "view.figures",
    "timeline": "view.timeline",
    "traffic_figure": "view.traffic_figures",
    "utilization_figure": "view.prediction_figures",
    "warm_up": "lab",
    "weight_pictures": "view.weight_pictures",
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
