"""The picture of a stopped run says what the parent saw, and nothing else."""

import pytest

from labkit.faults import LastSeen
from labkit.view.survivors import survivors_figure

RANKS = (
    LastSeen(0, "sync all_reduce, microbatch 0, in step 1", 0.5, "raised RuntimeError: Connection closed by peer", 0.1),
    LastSeen(1, "stage_forward, microbatch 0, in step 1", 0.4, "died: killed by SIGKILL", 0.3),
    LastSeen(2, "sync all_reduce, microbatch 0, in step 1", 0.2, "", None),
)


def test_bars_reach_from_the_last_event_to_the_stop():
    bars = survivors_figure(RANKS).data[0]
    assert list(bars.y) == [0, 1, 2]
    assert list(bars.base) == [-500, -400, -200]  # ms
    assert [start + length for start, length in zip(bars.base, bars.x)] == [0, 0, 0]


def test_who_ended_and_who_noticed_are_told_apart():
    _, _, *marks = survivors_figure(RANKS).data
    marks = {one.name: (list(one.x), list(one.y)) for one in marks}
    assert marks == {"ended": ([-300], [1]), "noticed: lost its connection": ([-100], [0])}


def test_every_rank_says_what_it_was_at():
    figure = survivors_figure(RANKS)
    assert list(figure.data[0].customdata) == [one.doing for one in RANKS]
    assert figure.data[1].text[:2] == ("sync all_reduce, in step 1", "stage_forward, in step 1")
    assert list(figure.layout.yaxis.ticktext) == ["rank 0", "rank 1", "rank 2"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_run_that_no_rank_had_begun_says_so(theme):
    figure = survivors_figure((), theme=theme)
    assert "No rank had begun" in str(figure.to_dict())
