"""The notebook's verbs: run a plan, look at what happened.

In: a Plan. Out: a Trace with its losses, its proof and its notes.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import platform
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from labkit import __version__, analysis, proof
from labkit.faults import Fault
from labkit.job import Outcome
from labkit.launch import POOL
from labkit.live import Live
from labkit.plan import Plan, PlanError
from labkit.trace import Meta, Trace, merge
from labkit.watch import HANG_AFTER_S, Progress, Results, RunError


def run(
    plan: Plan,
    *,
    task: Any = None,
    verify: bool = False,
    fault: Fault | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_trace: Callable[[Trace], None] | None = None,
    cancelled: threading.Event | None = None,
    hang_after_s: float = HANG_AFTER_S,
) -> Trace:
    """Train as the plan says, in real processes, and return everything they did.

    task: a user's own `labkit.engine.tasks.Task`, for a plan with task="own". verify: train the same on one rank too
    and put the differences into `trace.meta.equality`. on_trace: called from another thread while it runs, at most four
    times a second, with the latest whole steps (see live.py), such as `live_timeline(plan).follow`. fault: what one
    rank does to itself, to see how the others notice.

    Raises PlanError before a process starts; RunError when a rank fails, RunCancelled when `cancelled` was set, both
    with what was recorded until then in `.trace`.
    """
    started = time.monotonic()
    pickled = _pickled(plan, task)
    options = {"task": pickled, "with_state": verify, "cancelled": cancelled, "hang_after_s": hang_after_s}
    try:
        with Live(plan, on_trace) if on_trace else contextlib.nullcontext() as live:
            on_part = live.add if live else None
            results = POOL.run(plan, fault=fault, on_progress=on_progress, on_part=on_part, **options)
    except RunError as error:
        error.trace = _told(trace_of(plan, error.results, started), fault)
        raise
    trace = _told(trace_of(plan, results, started), fault)
    if verify:
        serial = POOL.run(plan.serial(), **options)
        trace = trace.with_meta(equality=proof.compare(results.outcomes, serial.outcomes).to_dict())
    return trace


def _told(trace: Trace, fault: Fault | None) -> Trace:
    return trace.with_meta(notes=(*trace.meta.notes, f"{fault}")) if fault is not None else trace


def warm_up(num_ranks: int = 4) -> None:
    """Load torch and fork ranks in the background, so that the first run starts at once."""
    threading.Thread(target=POOL.warm_up, args=(num_ranks,), daemon=True).start()


def close() -> None:
    """Stop the waiting ranks. The next run starts new ones."""
    POOL.close()


def _pickled(plan: Plan, task: Any) -> bytes | None:
    if (plan.task == "own") != (task is not None):
        raise PlanError(
            f"plan.task is {plan.task!r} and task= is {'given' if task is not None else 'not given'}: "
            f"a plan of your own task says task='own' and gets it by run(plan, task=...)"
        )
    if task is None:
        return None
    import cloudpickle

    task.check(plan)
    try:
        return cloudpickle.dumps(task)
    except (TypeError, pickle.PicklingError) as error:
        raise PlanError(
            f"the task cannot be sent to the ranks: {error}; keep locks, files and the like out of it"
        ) from None


def trace_of(plan: Plan, results: Results, started: float | None = None) -> Trace:
    done: Sequence[Outcome] = [outcome for outcome in results.outcomes if outcome is not None]
    whole = len(done) == plan.num_ranks
    meta = Meta(
        source=plan.source,
        plan=plan.to_dict(),
        num_ranks=plan.num_ranks,
        layers=done[0].layers if done else (),
        losses=tuple(proof.global_losses(done)) if whole else (),
        versions={"labkit": __version__, "python": platform.python_version(), **(done[0].versions if done else {})},
        num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        seconds=_seconds(done) if whole else {},
    )
    trace = merge(results.parts, meta)
    notes = (*analysis.notes(trace), *_outcome_notes(meta.losses, whole))
    seconds = trace.meta.seconds | ({"total": time.monotonic() - started} if started is not None else {})
    return replace(trace, meta=replace(trace.meta, notes=notes, seconds=seconds))


def _outcome_notes(losses: Sequence[float], whole: bool) -> list[str]:
    lost = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    notes = (
        [] if lost is None else [f"the loss is no finite number from step {lost} on: the training diverged, lower lr"]
    )
    return notes if whole else [*notes, "the run did not finish: this is what was recorded until then"]


def _seconds(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """to_first_step: until the slowest rank had done its first step; step_median: of the slowest rank's steps."""
    steps = [max(step) for step in zip(*(outcome.step_seconds for outcome in outcomes), strict=True)]
    return {
        "to_first_step": max(outcome.first_step_seconds for outcome in outcomes),
        "step_median": statistics.median(steps),
    }
