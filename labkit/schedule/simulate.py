"""A schedule on a clock: a Schedule and durations in, one Slot per action out. See bubble.py for what is idle."""

from collections.abc import Sequence

from labkit.schedule.action import Kind, ScheduleError
from labkit.schedule.check import deadlock
from labkit.schedule.clock import Durations, Slots
from labkit.schedule.order import Schedule


def simulate(schedule: Schedule, durations: Durations | Sequence[Durations], *, hop: float = 0.0) -> Slots:
    """Every action with its start and end, rank by rank, in order of time within a rank.

    `durations` are those of one stage's action on one microbatch, one for all stages or one for each. `hop` is the time
    a message between ranks takes; it delays the receiver and keeps neither rank busy. All in one unit, any.
    An overlapped pair takes as long as its two halves, and what both produce leaves at its end, as in PyTorch.
    The schedule must be legal: the published ones are, run `check` on your own. A deadlock raises ScheduleError.
    """
    from labkit.schedule.waves import waves  # which loads numpy

    per_stage = _per_stage(schedule, durations)
    if not 0 <= hop < float("inf"):
        raise ValueError(f"hop={hop} is no duration: give a finite number, 0 or more.")
    reached = waves(schedule)
    if reached.stuck(schedule):
        raise ScheduleError(deadlock(schedule))
    return Slots(schedule, *reached.times([{kind: each.of(kind) for kind in Kind} for each in per_stage], hop))


def _per_stage(schedule: Schedule, durations: Durations | Sequence[Durations]) -> Sequence[Durations]:
    if isinstance(durations, Durations):
        return [durations] * schedule.num_stages
    if len(durations) != schedule.num_stages:
        raise ValueError(
            f"{len(durations)} durations for {schedule.num_stages} stages: give one for each stage, or one for all."
        )
    return durations
