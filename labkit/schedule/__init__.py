"""The order of pipeline work as data: actions such as 2F0, ten published schedules, a check, a simulation.

No torch: a schedule needs no process. The flow: `generate` or `Schedule.from_text` gives a Schedule;
`check` says whether it can run; `simulate` puts it on a clock; the engine hands its order to PyTorch.

    action.py     one piece of work and its text form
    order.py      Schedule: every rank's actions, which rank holds which stage, CSV in and out
    registry.py   the schedules by name, the shapes they accept, `problem` and `generate`
    published.py  the schedules themselves, one function each
    clock.py      words for time: Durations, Slot
    waves.py      what an action waits for, how far each rank gets, and when
    check.py      may it run?            grid.py  rank x time as text
    simulate.py   when?                  bubble.py  how much of the time is idle?
"""

from labkit.schedule import published as published  # fills SCHEDULES
from labkit.schedule.action import Action, Kind, Overlap, ScheduleError
from labkit.schedule.bubble import bubble_fraction, bubble_of_ideal, bubble_of_span, ideal_bubble
from labkit.schedule.check import check, check_orders
from labkit.schedule.clock import Durations, Slot, Slots
from labkit.schedule.grid import schedule_grid
from labkit.schedule.order import Schedule, place
from labkit.schedule.registry import (
    SCHEDULES,
    Shape,
    Spec,
    default_microbatches,
    default_virtual,
    generate,
    pipeline_schedule,
    problem,
)
from labkit.schedule.simulate import simulate

__all__ = [
    "SCHEDULES",
    "Action",
    "Durations",
    "Kind",
    "Overlap",
    "Schedule",
    "ScheduleError",
    "Shape",
    "Slot",
    "Slots",
    "Spec",
    "bubble_fraction",
    "bubble_of_ideal",
    "bubble_of_span",
    "check",
    "check_orders",
    "default_microbatches",
    "default_virtual",
    "generate",
    "ideal_bubble",
    "pipeline_schedule",
    "place",
    "problem",
    "schedule_grid",
    "simulate",
]
