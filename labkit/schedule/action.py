"""One piece of pipeline work: a stage, what it does, and for which microbatch. Imports nothing of labkit.

The text form is PyTorch's, so a cell written here can be read there and the other way round (see
torch/distributed/pipelining/schedules.py, `_Action`): stage, one letter, microbatch.

    2F0   stage 2, forward, microbatch 0
    2B0   stage 2, full backward (gradient of the input and of the weights together)
    2I0   stage 2, backward for the input only: the half the stage before is waiting for
    2W0   stage 2, backward for the weights only: nobody waits for it, so it can fill idle time
    (0F4;7B1)OVERLAP_F_B   a forward and a backward that run as one unit (DualPipeV)
"""

import re
from enum import StrEnum
from typing import NamedTuple, Self

_CELL = re.compile(r"([0-9]+)([FBIW])([0-9]+)")
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")


class ScheduleError(ValueError):
    """A schedule that cannot be read, cannot be made, or cannot run. The message holds the way out."""


class Kind(StrEnum):
    """What a stage does with a microbatch. B does the work of I and W in one go."""

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"

    __hash__ = (
        str.__hash__
    )  # equal to its letter, so hashed as its letter; Enum's own is Python code and ten times slower


class Action(NamedTuple):
    """Work of `stage` on `microbatch`, both counted from 0. Prints as "2F0".

    A NamedTuple, not a dataclass: a schedule of 64 ranks holds 65 000 of them, and a tuple is made and unpacked
    several times faster.
    """

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    __repr__ = __str__

    @classmethod
    def parse(cls, text: str) -> Self:
        """The action written as `text` ("2F0", blanks around it allowed). Raises ScheduleError otherwise."""
        match = _CELL.fullmatch(text.strip())
        if match is None:
            raise ScheduleError(
                f"{text.strip()!r} is not an action. Write stage, one of F B I W, microbatch, such as 2F0. "
                "A file of PyTorch must hold computation only: save it with format='compute_only', "
                "without SEND, RECV, UNSHARD or REDUCE_GRAD."
            )
        stage, kind, microbatch = match.groups()
        return cls(int(stage), Kind(kind), int(microbatch))


class Overlap(NamedTuple):
    """A forward and a backward that one rank runs as a unit: what both produce leaves when the backward is done.

    On a GPU the point is to hide the messages of one behind the computation of the other (DeepSeek-V3,
    arXiv 2412.19437, section 3.2.1). PyTorch computes the forward, then the backward, then sends both results.
    """

    forward: Action
    backward: Action

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"

    __repr__ = __str__

    @classmethod
    def parse(cls, text: str) -> Self:
        """The pair written as `text`, "(0F4;7B1)OVERLAP_F_B". Raises ScheduleError otherwise."""
        match = _PAIR.fullmatch(text.strip())
        if match is None:
            raise ScheduleError(f"{text.strip()!r} is not an overlapped pair. Write it as (0F4;7B1)OVERLAP_F_B.")
        return cls(*map(Action.parse, match.groups()))
