"""From the first forward of a step to the last backward. Times of the stages in, seconds out.

With F and B the slowest rank's times of all its stages, m microbatches, p ranks, v stages a rank, a schedule whose
ranks wait for their messages takes m (F + B + 2 v messages) + (p-1) (mean F + B of the others / v + 2 messages):
Narayanan et al. 2021, sections 2.2 and 2.3. Other schedules are put on a clock.
"""

from __future__ import annotations

from functools import lru_cache

from labkit import schedule
from labkit.costs import Training
from labkit.predict.stage import StageTime

BLOCKING = ("1f1b", "gpipe", "interleaved_1f1b")
"""Schedules whose messages a rank waits for (Megatron); with others a message only delays its receiver."""


def pipeline_s(training: Training, stages: tuple[StageTime, ...], message_s: float) -> float:
    """From the first forward to the last backward."""
    m, p, v = training.num_microbatches, training.pp, training.virtual
    slowest = max(stage.both_s for stage in stages)
    if p == 1:
        return m * slowest
    if training.schedule in BLOCKING:
        mean = (sum(stage.both_s for stage in stages) - slowest) / (p - 1)
        return m * (slowest + 2 * v * message_s) + (p - 1) * (mean / v + 2 * message_s)
    return _length_s(*_on_clock(training, stages, message_s))


@lru_cache(maxsize=256)
def _length_s(
    spec: schedule.Spec, p: int, m: int, v: int, durations: tuple[schedule.Durations, ...], hop_s: float
) -> float:
    """The clock's last end. Kept: advice, tables of cases and sweeps ask for the same pipeline again and again."""
    return float(schedule.simulate(schedule.generate(spec.name, p, m, v), durations, hop=hop_s).ends.max())


def clock(training: Training, stages: tuple[StageTime, ...], message_s: float) -> schedule.Slots:
    """Every piece of pipeline work with its start and end, in seconds."""
    spec, p, m, v, durations, hop_s = _on_clock(training, stages, message_s)
    return schedule.simulate(schedule.generate(spec.name, p, m, v), durations, hop=hop_s)


def _on_clock(
    training: Training, stages: tuple[StageTime, ...], message_s: float
) -> tuple[schedule.Spec, int, int, int, tuple[schedule.Durations, ...], float]:
    """Schedule, ranks, microbatches, stages per rank, durations of each stage, and what a message delays."""
    spec, p, v = schedule.SCHEDULES[training.schedule], training.pp, training.virtual
    held_s = blocked_s(training, message_s)
    of_rank = [_duration(stage, v, held_s) for stage in stages]
    durations = tuple(of_rank[rank] for rank in schedule.place(p, v, spec.placement))
    hop_s = message_s - held_s if p > 1 else 0.0
    return spec, p, training.num_microbatches, v, durations, hop_s


def blocked_s(training: Training, message_s: float) -> float:
    """How long a message keeps the rank that sends it."""
    return message_s if training.schedule in BLOCKING and training.pp > 1 else 0.0


def _duration(stage: StageTime, virtual: int, held_s: float) -> schedule.Durations:
    """One of a rank's `virtual` stages, with the message it waits for."""
    return schedule.Durations(
        forward=stage.forward_s / virtual + held_s,
        backward_input=(stage.backward_s - stage.weight_s) / virtual + held_s,
        backward_weight=stage.weight_s / virtual,
    )
