"""Predict, run, compare. Starts processes."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date

import polars as pl

from labkit import lab
from labkit.analysis.memory import HELD
from labkit.costs import task_memory
from labkit.event import STAGE_KINDS, Kind
from labkit.own_runs.plans import CAPTURED, PAIRS, REMEMBERED, REPLAYED, Pair
from labkit.own_runs.record import Compared, Record
from labkit.plan import Plan
from labkit.replay import Changes, replan, replay, step_ns
from labkit.schedule import Action, generate
from labkit.schedule.action import Kind as ActionKind
from labkit.trace import Trace


def record_all(tell: Callable[[Compared], None] = lambda row: None, *, pairs: Iterable[Pair] = PAIRS) -> Record:
    """Run everything, minutes of it, and give each row to `tell` as it comes."""
    rows: list[Compared] = []
    traces = {name: kept_pace(plan) for name, plan in CAPTURED.items()}
    for row in _all_rows(traces, pairs):
        rows.append(row)
        tell(row)
    meta = next(iter(traces.values())).meta
    machine = f"{platform.system()}, {platform.machine()}"
    return Record(date.today().isoformat(), machine, meta.num_cores, meta.versions, HOW, tuple(rows))


def _all_rows(traces: dict[str, Trace], pairs: Iterable[Pair]) -> Iterator[Compared]:
    for pair in pairs:
        yield try_pair(pair, traces[pair.captured]).compared
    for case, plan in REPLAYED.items():
        yield from replayed(case, plan)
    for case, plan in REMEMBERED.items():
        yield from remembered(case, plan)


STEP = "step, ms"


@dataclass(frozen=True)
class Trial:
    """A pair's prediction and the run that followed."""

    pair: Pair
    predicted: Trace
    run: Trace

    @property
    def compared(self) -> Compared:
        predicted_ms, measured_ms = step_ns(self.predicted) / 1e6, step_ns(self.run) / 1e6
        return Compared("replanned", str(self.pair), STEP, predicted_ms, measured_ms, late_ms(self.run))


def try_pair(pair: Pair, captured: Trace | None = None, run: Callable[[Plan], Trace] = lab.run) -> Trial:
    """Predict the new plan from the captured run (run now, if not given), then really run it."""
    predicted = replan(captured or kept_pace(pair.old, run), pair.new)
    return Trial(pair, predicted, kept_pace(pair.new, run))


HOW = "Of up to three runs of a paced plan the one whose real work was least late is taken, whatever came out."
_TRIES = 3
_SOON_ENOUGH_MS = 30.0
"""A run whose real work was late by no more than this is taken at once."""


def kept_pace(plan: Plan, run: Callable[[Plan], Trace] = lab.run) -> Trace:
    """A run of the plan. Paced: of up to three, the one whose real work was least late, whatever came out."""
    runs = []
    for _ in range(_TRIES):
        runs.append(run(plan))
        if (late_ms(runs[-1]) or 0.0) <= _SOON_ENOUGH_MS:
            return runs[-1]
    return min(runs, key=lambda trace: late_ms(trace) or 0.0)


def late_ms(trace: Trace) -> float | None:
    """By how much the real work of a paced run was late, at most; None where nothing was paced."""
    late_ns = trace.events.filter(pl.col("step") > 0)["late_ns"].max()
    return None if late_ns is None else late_ns / 1e6


def replayed(case: str, plan: Plan) -> Iterator[Compared]:
    """The run's own trace as it was; of an unpaced one also by device time."""
    trace = kept_pace(plan)
    by_clock = f"{case}, by the clock" if plan.pace is None else case
    yield Compared("replayed", by_clock, STEP, step_ns(replay(trace)) / 1e6, step_ns(trace) / 1e6, late_ms(trace))
    if plan.pace is None:
        again = replay(trace, Changes(device_time="cpu", no_sync=True))
        both = [(_work_ns(again, step), longest_chain_ns(trace, plan, step)) for step in range(1, plan.steps)]
        predicted, measured = (statistics.median(times) / 1e6 for times in zip(*both, strict=True))
        yield Compared("replayed", f"{case}, by device time", STEP, predicted, measured)


def _work_ns(trace: Trace, step: int) -> int:
    """From the first start to the last end of a step's stage work."""
    work = trace.of(*STAGE_KINDS).filter(pl.col("step") == step)
    return work["end_ns"].max() - work["start_ns"].min()


def longest_chain_ns(trace: Trace, plan: Plan, step: int) -> int:
    """The longest chain of a step's CPU times in the order of its schedule; for schedules with whole backwards.

    An action follows the one before it on its rank, and the same microbatch's on the neighbouring stage. The loss
    counts with the last forward.
    """
    took_ns = _cpu_times(trace, step)
    order = plan.pipeline or generate("1f1b", 1, plan.microbatches, 1)
    ends_ns: dict[Action, int] = {}
    left, free_ns = [list(actions) for actions in order.orders], [0] * order.num_ranks
    while any(left):
        for rank, actions in enumerate(left):
            while actions and ((needed := _needed(actions[0], order.num_stages)) is None or needed in ends_ns):
                action = actions.pop(0)
                ready_ns = max(free_ns[rank], ends_ns[needed] if needed else 0)
                ends_ns[action] = free_ns[rank] = ready_ns + took_ns[action.stage, action.kind, action.microbatch]
    return max(ends_ns.values())


def _needed(action: Action, num_stages: int) -> Action | None:
    """The action on the neighbouring stage that has to come first."""
    stage = action.stage - 1 if action.kind == ActionKind.FORWARD else action.stage + 1
    return action._replace(stage=stage) if 0 <= stage < num_stages else None


_ACTIONS = {
    Kind.STAGE_FORWARD: ActionKind.FORWARD,
    Kind.LOSS: ActionKind.FORWARD,
    Kind.STAGE_BACKWARD: ActionKind.BACKWARD,
}


def _cpu_times(trace: Trace, step: int) -> dict[tuple[int, str, int], int]:
    """CPU time of each stage, kind of action and microbatch."""
    work = trace.of(*_ACTIONS).filter(pl.col("step") == step)
    kind = pl.col("kind").cast(pl.String).replace_strict({str(k): str(v) for k, v in _ACTIONS.items()}).alias("action")
    sums = work.group_by("stage", kind, "microbatch").agg(pl.col("cpu_ns").sum())
    return {(stage, action, microbatch): cpu_ns for stage, action, microbatch, cpu_ns in sums.iter_rows()}


_PREDICTED = {
    "param_bytes": ("parameters", "param_bytes"),
    "grad_bytes": ("gradients", "grad_bytes"),
    "optimizer_bytes": ("optimizer state", "optimizer_bytes"),
    "activation_bytes": ("activations", "activation_bytes"),
}
"""Columns of events: in words, and the field of `TaskMemory`."""


def remembered(case: str, plan: Plan) -> Iterator[Compared]:
    """Most bytes of each kind: of all ranks the one that is furthest off."""
    held = lab.run(plan).events.group_by("rank").agg(pl.col(HELD).max()).sort("rank").to_dicts()
    computed = task_memory(plan)
    for column, (words, field) in _PREDICTED.items():
        rows = [
            Compared("memory", case, f"{words}, bytes", getattr(one, field), of_rank[column] or 0)
            for one, of_rank in zip(computed, held, strict=True)
        ]
        yield max(rows, key=lambda row: abs(row.error))
