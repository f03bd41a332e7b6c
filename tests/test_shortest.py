"""The shortest order there is, against orders worked out by hand and against 1F1B."""

import pytest

from labkit import schedule
from labkit.schedule import Durations
from labkit.schedule.shortest import shortest


def test_by_hand():
    # One rank: F B F B. Two ranks, one microbatch: F F B B in a row.
    assert shortest(1, 2, 1) == 6
    assert shortest(2, 1, 1) == 6
    # Two ranks, two microbatches, room for one each: the second cannot enter before the first has left.
    assert shortest(2, 2, 1) == 12
    assert shortest(1, 1, 1, Durations(forward=3, backward_input=0.5, backward_weight=0.5)) == 4


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 2), (2, 4), (3, 3), (3, 4)])
def test_with_room_for_all_ranks_nothing_beats_1f1b(ranks, microbatches):
    slots = schedule.simulate(schedule.generate("1f1b", ranks, microbatches, 1), Durations())
    assert shortest(ranks, microbatches, ranks) == max(slot.end for slot in slots) == 3 * (microbatches + ranks - 1)


def test_less_room_never_helps_and_no_room_means_one_after_the_other():
    lengths = [shortest(3, 4, room) for room in (4, 3, 2, 1)]
    assert lengths == sorted(lengths) and lengths[-1] == 4 * 3 * 3


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_search(sizes):
    with pytest.raises(ValueError, match="each at least 1"):
        shortest(*sizes)
