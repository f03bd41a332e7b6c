"""A lesson's verbs: recall a run that was kept, turn knobs and dials, place work by hand, make a rank fail.

In: a Plan. Out: its capture from `assets/captures` when that is kept, else a run now; widgets that do the same.
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
from labkit.faults import Fault, LastSeen
from labkit.lab import run
from labkit.nearest import nearest_legal
from labkit.plan import Plan, PlanError
from labkit.schedule.shortest import shortest
from labkit.trace import Trace
from labkit.watch import RunError

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


def knobs(
    plan: Plan, draw: Callable[[Trace], Any], *, title: str = "Turn a knob", own: Any = None, **values: Sequence[Any]
) -> Any:
    """Knobs for fields of a plan, and below them `draw` of its trace: `knobs(plan, timeline, microbatches=(1, 2, 4))`.

    A plan whose capture is kept shows at once, any other is run. A combination that cannot run explains itself.
    own: the task of a plan with task="own"; its runs are never kept.
    Raises PlanError for a knob that is no field of a Plan, ValueError for one without values.
    """
    from labkit.view.knobs import Knobs, knobs_form

    def plan_from(turned: dict[str, Any]) -> Plan:
        return plan.vary(**turned)

    def run_values(turned: dict[str, Any], progress: Callable[..., None], cancelled: threading.Event) -> Trace:
        return run(plan_from(turned), task=own, on_progress=lambda now: now.tell(progress), cancelled=cancelled)

    plan.vary(**{name: getattr(plan, name, None) for name in values})  # refuses unknown names before anything is shown
    form = knobs_form(plan.to_dict(), values, title)
    if os.environ.get(KEEP) and own is None:
        _keep_all(plan, values)

    def kept(turned: dict[str, Any]) -> Trace | None:
        return kept_capture(plan_from(turned)) if own is None else None

    return Knobs(run_values, plan_from, form, draw, kept, partial(_nearest, plan))


def fault_lab(
    plan: Plan, *, hang_after_s: float = 3.0, title: str = "Make a rank fail", **values: Sequence[Any]
) -> Any:
    """Knobs for the fields of a `Fault` in this plan: `fault_lab(plan, what=("kill", "stop"), rank=(0, 1), step=(1,))`.

    Each turn runs the plan with that fault, and shows its error, what every rank was at, and the timeline until then.
    """
    from labkit.view.knobs import Knobs, knobs_form
    from labkit.view.survivors import survivors_figure
    from labkit.view.timeline import timeline

    seen: list[LastSeen] = []

    def fault_from(turned: dict[str, Any]) -> Fault:
        return Fault(**{name: turned[name] for name in values})

    def plan_from(turned: dict[str, Any]) -> Plan:
        fault_from(turned).check(plan)
        return plan

    def run_values(turned: dict[str, Any], progress: Callable[..., None], cancelled: threading.Event) -> Trace:
        seen.clear()
        options = {"on_progress": lambda now: now.tell(progress), "cancelled": cancelled, "hang_after_s": hang_after_s}
        try:
            return run(plan, fault=fault_from(turned), **options)
        except RunError as error:
            seen[:] = error.ranks
            raise

    def draw(trace: Trace) -> list[Any]:
        return [*([survivors_figure(seen)] if seen else []), timeline(trace)]

    return Knobs(run_values, plan_from, knobs_form(plan.to_dict(), values, title), draw, lambda _: None)


def _nearest(plan: Plan, turned: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """The nearest plan that can run, as values of the form and in words."""
    found = nearest_legal(plan.varied(**turned))
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
