"""Rounds and bytes of all-reduces are counted from messages, and agree with the closed forms."""

import example_traces as examples
import message_traces as made
import pytest

from labkit.view.all_reduce_costs import all_reduce_costs
from labkit.view.sync_figures import all_reduce_figure

# By hand, for 8 numbers of 8 bytes: rounds, bytes the busiest rank sends, messages.
BY_HAND = {
    ("ring", 2): (2, 64, 4),
    ("ring", 4): (6, 96, 24),
    ("ring", 8): (14, 112, 112),
    ("tree", 4): (4, 128, 6),
    ("tree", 8): (6, 192, 14),
    ("gather", 2): (2, 64, 2),
    ("gather", 4): (6, 192, 6),
}


@pytest.mark.parametrize(("shape", "n"), BY_HAND)
def test_counts_are_those_worked_out_by_hand_and_by_the_formula(shape, n):
    (row,) = all_reduce_costs([getattr(made, shape)(n)]).to_dicts()
    assert (row["shape"], row["num_ranks"], row["size_bytes"]) == (shape, n, 64)
    assert (row["rounds"], row["busiest_bytes"], row["messages"]) == BY_HAND[shape, n]
    assert row["rounds_theory"] == row["rounds"] and row["sent_theory"] == row["sent"]


def test_runs_that_averaged_otherwise_are_left_out():
    assert all_reduce_costs([examples.data_parallel(), examples.empty()]).is_empty()
    assert "grad_sync" in all_reduce_figure([examples.empty()]).layout.annotations[0].text


@pytest.mark.parametrize("show", ["bytes", "rounds"])
def test_counted_points_lie_on_the_curve(show):
    figure = all_reduce_figure([made.ring(n) for n in (2, 4, 8)], show=show)
    curve, points = figure.data
    drawn = dict(zip(curve.x, curve.y))
    assert {n: drawn[n] for n in points.x} == dict(zip(points.x, points.y))
    assert points.name == "ring" and "paced" in figure.layout.title.subtitle.text
