"""May this schedule run? A Schedule in; nothing out, or a ScheduleError that shows the rank and the place.

Whatever passes here runs to its end on any durations: each microbatch gets one forward and one backward (whole or in
its two halves) on every stage, on the rank that holds the stage, in an order in which nobody waits for ever.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

from labkit.schedule.action import Action, Kind, ScheduleError
from labkit.schedule.grid import format_grid, progress_grid
from labkit.schedule.order import Schedule

if TYPE_CHECKING:
    from labkit.schedule.waves import Waves

_BEFORE, _AFTER = 8, 8  # cells shown on either side of a fault


def check(schedule: Schedule) -> None:
    """Raise ScheduleError unless every rank can run its order to the end.

    Looked for, in this order: an unknown stage or microbatch, a wrong rank, an action twice, a backward before its
    forward, a weight half before its input half, a full backward beside halves, a broken overlapped pair, a missing
    action, a deadlock. The message shows the ranks' orders with the guilty row marked.
    """
    check_orders(schedule)
    if _waves(schedule).stuck(schedule):
        raise ScheduleError(deadlock(schedule))


def check_orders(schedule: Schedule) -> None:
    """As `check`, without looking for a deadlock, which `simulate` finds by itself."""
    gone = [dict.fromkeys(range(schedule.num_microbatches), "") for _ in schedule.placement]
    for rank, order in enumerate(schedule.orders):
        here = {stage: gone[stage] for stage in schedule.stages_of(rank)}
        try:
            for stage, kind, microbatch in order:
                here[stage][microbatch] += kind
        except KeyError:  # a stage that is not here, or no such microbatch
            _find_fault(schedule)
    if any(not _WHOLE.issuperset(row.values()) for row in gone):
        _find_fault(schedule)
    _check_pairs(schedule)


_WHOLE = {"FB", "FIW"}
"""What a microbatch goes through on a stage."""


def _find_fault(schedule: Schedule) -> None:
    """Raise the first fault, action by action; there is one."""
    for rank, order in enumerate(schedule.orders):
        done: set[Action] = set()
        for step, action in enumerate(order):
            fault = _misplaced(schedule, rank, action) or _out_of_order(done, action)
            if fault:
                raise ScheduleError(_shown(schedule, rank, step, fault))
            done.add(action)
    _check_pairs(schedule)
    _check_complete(schedule, {action for order in schedule.orders for action in order})


def _waves(schedule: Schedule) -> "Waves":
    from labkit.schedule.waves import waves  # which loads numpy

    return waves(schedule)


def _misplaced(schedule: Schedule, rank: int, action: Action) -> str | None:
    stages, microbatches = schedule.num_stages, schedule.num_microbatches
    if not 0 <= action.stage < stages:
        return f"there is no stage {action.stage}: the stages are 0 to {stages - 1}"
    if not 0 <= action.microbatch < microbatches:
        return f"there is no microbatch {action.microbatch}: the microbatches are 0 to {microbatches - 1}"
    home = schedule.placement[action.stage]
    if home != rank:
        return f"stage {action.stage} lives on rank {home}: move it there"
    return None


def _out_of_order(done: set[Action], action: Action) -> str | None:
    """What is wrong with running `action` after `done`, the rank's actions before it."""
    if action in done:
        return "it runs twice, remove one"
    if action.kind == Kind.FORWARD:
        return None
    forward, whole, half, weight = _kinds(action.stage, action.microbatch)
    if forward not in done:
        return f"it needs {forward} first, on the same stage"
    if action == whole and done & {half, weight}:
        return f"a full backward beside {half}, one of its halves: use B alone, or I and W"
    if action != whole and whole in done:
        return f"a half of the backward beside {whole}, the whole of it: use B alone, or I and W"
    if action == weight and half not in done:
        return f"it needs {half} first: the weight half uses what the input half leaves behind"
    return None


def _kinds(stage: int, microbatch: int) -> tuple[Action, Action, Action, Action]:
    """All that can be done with a microbatch on a stage: forward, whole backward, its input half, its weight half."""
    forward, whole, half, weight = (Action(stage, kind, microbatch) for kind in Kind)
    return forward, whole, half, weight


def _check_pairs(schedule: Schedule) -> None:
    """An overlapped pair is a forward and the backward right after it in one rank's order."""
    if not schedule.overlapped:
        return
    neighbours = {pair for order in schedule.orders for pair in pairwise(order)}
    for pair in schedule.overlapped:
        halves = (pair.forward.kind, pair.backward.kind)
        if tuple(pair) not in neighbours or halves not in (("F", "B"), ("F", "I")):
            raise ScheduleError(
                f"Schedule {schedule.name!r}: {pair} needs a forward and, right after it on the same rank, a backward."
            )


def _check_complete(schedule: Schedule, done: set[Action]) -> None:
    """Every microbatch has its forward and its whole backward on every stage."""
    for stage, rank in enumerate(schedule.placement):
        for microbatch in range(schedule.num_microbatches):
            missing = _missing(done, stage, microbatch)
            if missing:
                fault = f"{missing} is missing, add it to this row"
                raise ScheduleError(_shown(schedule, rank, len(schedule.orders[rank]), fault))


def _missing(done: set[Action], stage: int, microbatch: int) -> str | None:
    forward, whole, half, weight = _kinds(stage, microbatch)
    if forward not in done:
        return str(forward)
    if whole in done or weight in done:  # a weight half has its input half before it, or we would not be here
        return None
    return str(weight) if half in done else f"{whole} (or {half} and {weight})"


def _shown(schedule: Schedule, rank: int, step: int, fault: str) -> str:
    """The fault, and below it the ranks' orders around it with the guilty row marked."""
    row = [str(action) for action in schedule.orders[rank]]
    guilty = row[step] if step < len(row) else "its end"
    grid = format_grid(
        [[str(action) for action in order] for order in schedule.orders],
        notes={rank: f"step {step}: {guilty}"},
        column="step",
        start=max(0, step - _BEFORE),
        num_columns=_BEFORE + _AFTER,
    )
    where = f"rank {rank}, step {step} ({guilty})"
    return f"Schedule {schedule.name!r}, {where}: {fault}.\n\n{grid}\n"


def deadlock(schedule: Schedule) -> str:
    """The message for a schedule whose ranks wait for each other: how far each came, and what it waits for."""
    reached = _waves(schedule)
    made = {action for rank, order in enumerate(schedule.orders) for action in order[: len(reached.reached(rank))]}
    notes = {
        rank: f"next {action}, waits for {_awaited(schedule, made, action)}"
        for rank, action in reached.stuck(schedule).items()
    }
    return (
        f"Schedule {schedule.name!r} stops: {_ranks(notes)} for ever. Follow the arrows from rank to rank, "
        f"and move an action that others wait for ahead of one that waits.\n\n{progress_grid(schedule, notes)}\n"
    )


def _ranks(notes: dict[int, str]) -> str:
    names = ", ".join(map(str, notes))
    return f"rank {names} waits" if len(notes) == 1 else f"ranks {names} wait"


def _awaited(schedule: Schedule, made: set[Action], action: Action) -> str:
    """What `action` waits for, in words, with the rank that should make it."""
    stage, kind, microbatch = action
    if kind == Kind.FORWARD:
        needed = Action(stage - 1, Kind.FORWARD, microbatch)
    elif kind == Kind.BACKWARD_WEIGHT:
        needed = Action(stage, Kind.BACKWARD_INPUT, microbatch)
    elif stage == schedule.num_stages - 1:
        needed = Action(stage, Kind.FORWARD, microbatch)
    else:
        needed = Action(stage + 1, Kind.BACKWARD, microbatch)
        halves = needed._replace(kind=Kind.BACKWARD_INPUT)
        needed = halves if any(halves in order for order in schedule.orders) else needed
    held = ", which leaves only with the backward of its pair" if needed in made else ""
    return f"{needed} of rank {schedule.placement[needed.stage]}{held}"
