"""The shortest time a pipeline of whole forwards and backwards can take when ranks can hold only so much. By search.

In: ranks, microbatches, room, durations. Out: a length. For puzzles: a few ranks and microbatches; the search grows
fast with both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from labkit.schedule.clock import Durations


@dataclass(frozen=True)
class _State:
    """How far each rank is, when it is free, and when the pieces that a neighbour still needs were ready."""

    forwards: tuple[int, ...]
    backwards: tuple[int, ...]
    free: tuple[float, ...]
    ready: frozenset[tuple[int, str, int, float]]


def shortest(num_ranks: int, num_microbatches: int, max_held: int, durations: Durations | None = None) -> float:
    """Least time in which every microbatch goes forward and back through one stage per rank, in order of microbatches.

    `max_held`: microbatches whose activations one rank may hold. Three ranks, four microbatches, forward 1 and backward
    2: 18 with room for three, as 1F1B takes, and 21 with room for two.
    """
    if min(num_ranks, num_microbatches, max_held) < 1:
        raise ValueError(f"{num_ranks} ranks, {num_microbatches} microbatches, room for {max_held}: each at least 1")
    durations = durations or Durations()
    nothing = (0,) * num_ranks
    best = float("inf")
    seen: set[_State] = set()
    todo = [_State(nothing, nothing, tuple(map(float, nothing)), frozenset())]
    while todo:
        state = todo.pop()
        if state in seen or _at_least(state, num_microbatches, durations) >= best:
            continue
        seen.add(state)
        if min(state.backwards) == num_microbatches:
            best = max(state.free)
        for rank in range(num_ranks):
            todo += _moves(state, rank, num_microbatches, max_held, durations)
    return best


def _at_least(state: _State, num_microbatches: int, durations: Durations) -> float:
    """No order that begins like this ends earlier: every rank has its remaining work to do."""
    forwards = [(num_microbatches - done) * durations.forward for done in state.forwards]
    backwards = [(num_microbatches - done) * durations.backward for done in state.backwards]
    return max(map(sum, zip(state.free, forwards, backwards)))


def _moves(state: _State, rank: int, num_microbatches: int, max_held: int, durations: Durations) -> list[_State]:
    """What the rank can do next: its next forward, its next backward, both or neither."""
    forwards, backwards, last = state.forwards, state.backwards, len(state.free) - 1
    f, b = forwards[rank], backwards[rank]
    moves = []
    if f < num_microbatches and f - b < max_held and (rank == 0 or forwards[rank - 1] > f):
        done = replace(state, forwards=_raised(forwards, rank))
        moves.append(_timed(done, rank, (rank - 1, "F", f), (rank, "F", f), durations.forward))
    if b < f and (rank == last or backwards[rank + 1] > b):
        done = replace(state, backwards=_raised(backwards, rank))
        moves.append(_timed(done, rank, (rank + 1, "B", b), (rank, "B", b), durations.backward))
    return moves


def _raised(counts: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (*counts[:rank], counts[rank] + 1, *counts[rank + 1 :])


def _timed(
    state: _State, rank: int, needs: tuple[int, str, int], gives: tuple[int, str, int], duration: float
) -> _State:
    """The state with the rank's piece on the clock, as early as it can be."""
    at = {(one, kind, microbatch): when for one, kind, microbatch, when in state.ready}
    end = max(state.free[rank], at.pop(needs, 0.0)) + duration
    ready = frozenset((*each, when) for each, when in (at | {gives: end}).items())
    return replace(state, free=(*state.free[:rank], end, *state.free[rank + 1 :]), ready=ready)
