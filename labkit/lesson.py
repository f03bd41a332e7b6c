"""A lesson's verbs: recall a run that was kept, turn knobs.

In: a Plan. Out: its capture from `assets/captures` when that is kept, else a run now.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from labkit.captures import keep_capture, kept_capture
from labkit.lab import run
from labkit.nearest import nearest_legal
from labkit.plan import Plan, PlanError
from labkit.schedule.shortest import shortest
from labkit.trace import Trace

KEEP = "LABKIT_KEEP_CAPTURES"
"""Environment variable: set while captures are made (`make captures`), so that what had to be run is kept."""


def recall(plan: Plan, *, verify: bool = False) -> Trace:
    """The kept capture of this plan, else a run of it now. Errors are those of `labkit.run`.

    verify: with the comparison to the serial run; a capture without one does not serve.
    """
    kept = kept_capture(plan, verify=verify)
    if kept is not None:
        return kept
    trace = run(plan, verify=verify)
    if os.environ.get(KEEP):
        keep_capture(trace, plan)
    return trace


def knobs(plan: Plan, draw: Callable[[Trace], Any], *, title: str = "Turn a knob", **values: Sequence[Any]) -> Any:
    """Knobs for fields of a plan, and below them `draw` of its trace: `knobs(plan, timeline, microbatches=(1, 2, 4))`.

    A plan whose capture is kept shows at once, any other is run. A combination that cannot run explains itself.
    Raises PlanError for a knob that is no field of a Plan, ValueError for one without values.
    """
    from labkit.view.knobs import Knobs, knobs_form

    def plan_from(turned: dict[str, Any]) -> Plan:
        return plan.vary(**turned)

    def run_values(turned: dict[str, Any], progress: Callable[..., None], cancelled: threading.Event) -> Trace:
        told = lambda now: progress(now.steps_done, now.steps)  # noqa: E731
        return run(plan_from(turned), on_progress=told, cancelled=cancelled)

    plan.vary(**{name: getattr(plan, name, None) for name in values})  # refuses unknown names before anything is shown
    form = knobs_form(plan.to_dict(), values, title)
    if os.environ.get(KEEP):
        _keep_all(plan, values)
    return Knobs(
        run_values, plan_from, form, draw, lambda turned: kept_capture(plan_from(turned)), partial(_nearest, plan)
    )


def _nearest(plan: Plan, turned: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """The nearest plan that can run, as values of the form and in words."""
    found = nearest_legal(plan.to_dict() | turned)
    return ({**turned, **found.changes}, str(found)) if found and found.changes else None


def dial(draw: Callable[..., Any], *, title: str = "Turn a knob", **values: Sequence[Any]) -> Any:
    """Knobs for the arguments of `draw`, whose picture is worked out and not run: `dial(chart, dp=(1, 2, 4))`.

    Each starts at the default of draw's argument, else at its first value. A ValueError of `draw` is shown in place.
    """
    from labkit.view.knobs import Dial, dial_form

    start = {name: one.default for name, one in inspect.signature(draw).parameters.items() if name in values}
    return Dial(dial_form(start, values, title), draw)


def place_work(num_ranks: int = 3, num_microbatches: int = 4, *, max_held: int | None = None) -> Any:
    """A board to place a pipeline's work on by hand, and to have that order really run (paced).

    A forward takes one unit, a backward two; a rank holds the activations of at most `max_held` microbatches (default:
    as many as there are ranks). The target is the least time there is, found by search: keep it to a few ranks.
    """
    from labkit.view.place_work import PlaceWork, PlaceWorkLab

    held = num_ranks if max_held is None else max_held
    target = shortest(num_ranks, num_microbatches, held)
    fixed = {"layers": num_ranks, "global_batch": 4 * num_microbatches, "steps": 3, "pace": PUZZLE_PACE}
    task = (
        f"Take {num_microbatches} microbatches through {num_ranks} ranks and back in {target:g} units of time. "
        f"No rank may hold more than {held} microbatches."
    )
    sizes = {"num_ranks": num_ranks, "num_microbatches": num_microbatches, "max_held": held, "target": target}
    return PlaceWorkLab(PlaceWork(task=task, **sizes), lambda order: run(Plan(order=order, **fixed)))


PUZZLE_PACE = "forward=20ms,backward=40ms"
"""How long a unit of the board is in its real run."""


def _keep_all(plan: Plan, values: dict[str, Sequence[Any]]) -> None:
    """Run and keep what the knobs can be turned to; what cannot run is left out."""
    for chosen in itertools.product(*values.values()):
        with contextlib.suppress(PlanError):
            recall(plan.vary(**dict(zip(values, chosen))))
