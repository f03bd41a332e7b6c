"""One training over several links: times in the links' own clock, lines, and replays, on traces worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_traces import over

from labkit.link_study import bandwidth_of, line_through, link_table, replayed_steps, step_us, sync_times


def test_the_line_through_points_on_a_line_is_that_line():
    line = line_through([0, 1, 3], [2, 4, 8])
    assert (line.intercept, line.slope) == (pytest.approx(2), pytest.approx(2)) and line.residual < 1e-12


@settings(deadline=None)
@given(st.floats(-9, 9), st.floats(-9, 9), st.floats(0.1, 5))
def test_the_residual_is_the_largest_distance(intercept, slope, off):
    x = np.array([0.0, 1, 2, 3])
    line = line_through(x, intercept + slope * x + np.array([off, -off, -off, off]))
    assert line.residual == pytest.approx(off)


def test_one_place_makes_no_line():
    with pytest.raises(ValueError, match="two places"):
        line_through([1, 1], [2, 3])


def test_syncs_are_told_in_the_links_own_time():
    (row,) = sync_times([over(1e9)]).to_dicts()  # of the last step
    assert row["wire_bytes"] == 80_000 and row["bandwidth_bytes_s"] == 1e9
    assert row["took_s"] == pytest.approx(5e-6 + 80e-6)


def test_the_slope_over_1_by_bandwidth_is_the_bytes_and_the_intercept_the_latency():
    syncs = sync_times([over(rate) for rate in (1e9, 2e9, 4e9)])
    line = line_through(1 / syncs["bandwidth_bytes_s"], syncs["took_s"])
    assert line.slope == pytest.approx(80_000) and line.intercept == pytest.approx(5e-6)


def test_a_step_is_taken_apart():
    (row,) = link_table({"slow": over(1e9)}).to_dicts()
    assert row["name"] == "slow"
    parts = [row[f"{part}_us"] for part in ("compute", "hidden", "exposed", "idle", "step")]
    assert parts == pytest.approx([300, 0, 85, 0, 385])


def test_a_replay_over_another_link_is_what_the_run_over_it_took():
    rates = (1e9, 4e9, 40e9)
    found = replayed_steps(over(2e9), [f"latency=5us,bandwidth={rate / 1e9}GB/s" for rate in rates])
    assert found["step_us"].to_list() == pytest.approx([step_us(over(rate)) for rate in rates])
    assert found["bandwidth_bytes_s"].to_list() == pytest.approx(rates)


def test_without_a_link_there_is_no_bandwidth():
    assert bandwidth_of(over(2e9)) == 2e9
    with pytest.raises(ValueError, match="no link is set for tp: this run has links for dp"):
        bandwidth_of(over(2e9), "tp")
