"""How far each rank gets, and when: the one place that knows what an action waits for.

    F of stage s   waits for F of stage s-1, and the message if that is on another rank
    B or I of s    waits for B or I of stage s+1, and the message; on the last stage for its own F
    W of s         waits for I of s

A rank runs its own order strictly, so the times follow from the order alone: no clock is stepped. Each rank runs on
until it needs something that is not there; whoever makes it wakes the rank. `check` asks this how far the ranks get,
`simulate` asks it when.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from labkit.schedule.action import Action, Kind
from labkit.schedule.order import Schedule

# A cell of a row of finishing times holds a time (>= 0) or one of these.
_NOT_DONE = -1.0
_AWAITED = -2.0


@dataclass(frozen=True, kw_only=True)
class Durations:
    """How long one action of one stage takes, in any one unit of time. A full backward takes both halves.

    The defaults, all equal, make a backward twice a forward, as in most papers.
    """

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0

    def __post_init__(self) -> None:
        for name in ("forward", "backward_input", "backward_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)} is no duration: give a finite number, 0 or more.")

    @property
    def backward(self) -> float:
        """A full backward: both halves."""
        return self.backward_input + self.backward_weight

    def of(self, kind: Kind) -> float:
        """The duration of one action of this kind."""
        return {
            Kind.FORWARD: self.forward,
            Kind.BACKWARD: self.backward,
            Kind.BACKWARD_INPUT: self.backward_input,
            Kind.BACKWARD_WEIGHT: self.backward_weight,
        }[kind]


class Slot(NamedTuple):
    """One action in time, start and end in the unit of the durations."""

    rank: int
    action: Action
    start: float
    end: float


class Progress(NamedTuple):
    """How far the ranks got: per rank, when each action so far started and ended. A rank with fewer is stuck."""

    starts: list[list[float]]
    ends: list[list[float]]

    def slots(self, schedule: Schedule) -> list[list[Slot]]:
        """The same as a Slot per action, by rank."""
        columns = enumerate(zip(schedule.orders, self.starts, self.ends, strict=True))
        return [list(map(Slot._make, zip(repeat(rank), *times, strict=False))) for rank, times in columns]

    def stuck(self, schedule: Schedule) -> dict[int, Action]:
        """The ranks that could not finish, each with the action it could not start."""
        steps = enumerate(zip(schedule.orders, map(len, self.ends), strict=True))
        return {rank: order[done] for rank, (order, done) in steps if done < len(order)}


class _Lane(NamedTuple):
    """All that matters for running one kind of action on one stage. Rows are indexed by microbatch."""

    needs: list[float]  # when the input was finished
    delay: float  # of the message that carries it
    cost: float
    done: list[float]  # where to note this action's own end
    consumer: int  # the rank that waits for it


def progress(schedule: Schedule, costs: Sequence[dict[Kind, float]], hop: float = 0.0) -> Progress:
    """Run every rank as far as it gets. `costs[stage][kind]` and `hop` (a message between ranks) in one unit."""
    lanes = _lanes(schedule, costs, hop)
    ends_pair = {pair.backward: pair.forward for pair in schedule.overlapped}
    held = frozenset(ends_pair.values())
    starts: list[list[float]] = [[] for _ in schedule.orders]
    ends: list[list[float]] = [[] for _ in schedule.orders]
    runnable = deque(range(schedule.num_ranks))
    while runnable:
        rank = runnable.popleft()
        order, started, ended = schedule.orders[rank], starts[rank], ends[rank]
        time = ended[-1] if ended else 0.0
        for step in range(len(ended), len(order)):
            stage, kind, microbatch = action = order[step]
            needs, delay, cost, done, consumer = lanes[stage][kind]
            ready = needs[microbatch]
            if ready < 0:
                needs[microbatch] = _AWAITED
                break
            ready += delay
            start = ready if ready > time else time
            time = start + cost
            started.append(start)
            ended.append(time)
            if held and action in held:
                continue  # its result leaves with the backward of its pair
            if done[microbatch] == _AWAITED:
                runnable.append(consumer)
            done[microbatch] = time
            if held and action in ends_pair:
                runnable.append(_release(lanes, ends_pair[action], time))
    return Progress(starts, ends)


def _release(lanes: list[dict[Kind, _Lane]], action: Action, time: float) -> int:
    """Note that a held action's result is out; gives the rank to wake."""
    lane = lanes[action.stage][action.kind]
    lane.done[action.microbatch] = time
    return lane.consumer


def _lanes(schedule: Schedule, costs: Sequence[dict[Kind, float]], hop: float) -> list[dict[Kind, _Lane]]:
    """Per stage and kind, where to look, what it costs and whom to tell."""
    placement, m = schedule.placement, schedule.num_microbatches
    last = schedule.num_stages - 1
    forward = [[_NOT_DONE] * m for _ in placement]
    backward = [[_NOT_DONE] * m for _ in placement]

    def lanes_of(stage: int, rank: int) -> dict[Kind, _Lane]:
        cost = costs[stage]
        above, below = max(stage - 1, 0), min(stage + 1, last)
        inputs = forward[above] if stage else [0.0] * m
        grads = backward[below] if stage < last else forward[last]
        to_here, to_back = (hop * (placement[other] != rank) for other in (above, below))
        return {
            Kind.FORWARD: _Lane(inputs, to_here, cost[Kind.FORWARD], forward[stage], placement[below]),
            **{
                kind: _Lane(grads, to_back, cost[kind], backward[stage], placement[above])
                for kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT)
            },
            Kind.BACKWARD_WEIGHT: _Lane(backward[stage], 0.0, cost[Kind.BACKWARD_WEIGHT], [_NOT_DONE] * m, rank),
        }

    return [lanes_of(stage, rank) for stage, rank in enumerate(placement)]
