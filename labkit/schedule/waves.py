"""A schedule laid out in waves: what each action waits for, how far each rank gets, and when. Needs numpy.

    F of stage s   waits for F of stage s-1, and the message if that is on another rank
    B or I of s    waits for B or I of stage s+1, and the message; on the last stage for its own F
    W of s         waits for I of s

A rank runs its own order strictly, so the times follow from the order alone: no clock is stepped. A wave holds the
actions whose inputs all lie in earlier waves, at most one of each rank; their times are computed in one go. Waves do
not depend on durations, so they are laid out once for a schedule. `check` asks how far the ranks get, `simulate` when.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from operator import itemgetter

import numpy as np

from labkit.schedule.action import Action, Kind
from labkit.schedule.order import Schedule

_NOTHING, _NOBODY = -1, -2
"""In place of an action that is waited for: none is, or one that no rank makes."""

Ints = np.ndarray


@dataclass(frozen=True)
class Waves:
    """Actions are numbered rank by rank, in each rank's order.

    first   number of each rank's first action, and of all actions together
    wave    of each action, from 1; 0 where a rank never gets there
    needs   the action that each waits for, besides the one before it on its rank; or _NOTHING, _NOBODY
    crosses whether that one's message comes from another rank
    """

    first: list[int]
    stage: Ints
    kind: Ints  # place in the list of kinds
    wave: Ints
    needs: Ints
    crosses: Ints

    def reached(self, rank: int) -> list[int]:
        """The waves of a rank's actions, as far as it gets."""
        own = self.wave[self.first[rank] : self.first[rank + 1]]
        return own[own > 0].tolist()

    def stuck(self, schedule: Schedule) -> dict[int, Action]:
        """The ranks that cannot finish, each with the action it cannot start."""
        if self.wave.all():
            return {}
        steps = [(order, len(self.reached(rank))) for rank, order in enumerate(schedule.orders)]
        return {rank: order[done] for rank, (order, done) in enumerate(steps) if done < len(order)}

    def times(self, costs: Sequence[dict[Kind, float]], hop: float) -> tuple[np.ndarray, np.ndarray]:
        """When each action starts and ends, in the unit of `costs[stage][kind]` and `hop`. For ranks that all finish.

        Two ranks, one microbatch, F = 1, B = 2, hop 10: 0F0 0-1, 1F0 11-12, 1B0 12-14, 0B0 24-26.
        """
        pieces, order = self._layout
        table = np.array([[cost[kind] for kind in Kind] for cost in costs], float)
        took = table[self.stage, self.kind][order]
        message = np.where(self.crosses, float(hop), 0.0)[order]
        starts, ends = np.empty(len(order)), np.zeros(len(order) + 1)  # the last: the end of nothing, 0
        for before, needed, here in pieces:
            there = ends.take(needed)
            there += message[here]
            start = np.maximum(ends.take(before), there, out=starts[here])
            np.add(start, took[here], out=ends[here])
        found = np.empty((2, len(order)))
        found[:, order] = starts, ends[:-1]
        return found[0], found[1]

    @cached_property
    def _layout(self) -> tuple[list[tuple[Ints, Ints, slice]], Ints]:
        """Wave by wave, where both inputs of its actions are, and where it is itself; the order of actions by waves."""
        num = len(self.wave)
        order = np.argsort(self.wave, kind="stable")
        place = np.empty(num + 1, np.int64)
        place[order], place[num] = np.arange(num), num
        before = np.arange(num) - 1
        before[[start for start in self.first[:-1] if start < num]] = num
        inputs = place[before[order]], place[np.where(self.needs >= 0, self.needs, num)[order]]
        ends = np.cumsum(np.bincount(self.wave)[1:]).tolist()
        spans = [slice(low, high) for low, high in zip([0, *ends], ends)]
        return [(inputs[0][here], inputs[1][here], here) for here in spans], order


@lru_cache(maxsize=8)
def waves(schedule: Schedule) -> Waves:
    """The layout of a schedule, each action of which must name a stage and a microbatch that there are."""
    stage, kind, microbatch = _columns(schedule)
    needs, other = _needs(schedule, stage, kind, microbatch)
    first = list(accumulate(map(len, schedule.orders), initial=0))
    wave = np.array(_wave_of_each(first, needs.tolist()), np.int64)
    placement = np.array(schedule.placement, np.int64)
    crosses = (needs >= 0) & (placement[other] != placement[stage])
    return Waves(first, stage, kind, wave, needs, crosses)


def _columns(schedule: Schedule) -> tuple[Ints, Ints, Ints]:
    """Stage, place of the kind in the list of kinds, and microbatch of every action."""
    actions = list(chain.from_iterable(schedule.orders))
    stage, microbatch = (np.fromiter(map(itemgetter(i), actions), np.int64, len(actions)) for i in (0, 2))
    code = np.zeros(128, np.int64)
    code[[ord(kind) for kind in Kind]] = range(len(Kind))
    letters = "".join(map(itemgetter(1), actions))
    return stage, code[np.frombuffer(letters.encode(), np.uint8)], microbatch


def _needs(schedule: Schedule, stage: Ints, kind: Ints, microbatch: Ints) -> tuple[Ints, Ints]:
    """The number of the action that each waits for, and that action's stage."""
    forward, _, _, weight = (kind == place for place in range(len(Kind)))
    backward = ~forward & ~weight
    made = np.full((2, schedule.num_stages, schedule.num_microbatches), _NOBODY)
    number = np.arange(len(stage))
    for way, which in ((0, forward), (1, backward)):
        made[way, stage[which], microbatch[which]] = number[which]
    if schedule.overlapped:  # what a pair's forward makes leaves with the pair's backward
        forwards, backwards = ([(half.stage, half.microbatch) for half in side] for side in zip(*schedule.overlapped))
        made[0, *np.array(forwards).T] = made[1, *np.array(backwards).T]
    turn = backward & (stage == schedule.num_stages - 1)
    way = np.where(forward | turn, 0, 1)
    other = stage - forward + (backward & ~turn)
    needs = made[way, np.maximum(other, 0), microbatch]
    return np.where(other < 0, _NOTHING, needs), np.maximum(other, 0)


def _wave_of_each(first: list[int], needs: list[int]) -> list[int]:
    """Run every rank as far as it gets, each action one wave after the later of its inputs.

    Each rank runs on until it needs something that is not there; whoever makes it wakes the rank.
    """
    wave, at = [0] * len(needs), list(first[:-1])
    waiting: dict[int, list[int]] = {}
    runnable = deque(range(len(at)))
    while runnable:
        rank = runnable.popleft()
        start, stop = at[rank], first[rank + 1]
        now = wave[start - 1] if start > first[rank] else 0
        for number in range(start, stop):
            needed = needs[number]
            if needed >= 0:
                ready = wave[needed]
                if not ready:
                    waiting.setdefault(needed, []).append(rank)
                    break
                if ready > now:
                    now = ready
            elif needed == _NOBODY:
                break
            now += 1
            wave[number] = now
            if number in waiting:
                runnable.extend(waiting.pop(number))
        else:
            number = stop
        at[rank] = number
    return wave
