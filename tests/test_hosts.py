"""Clocks of several hosts: readings from round trips, and times corrected by them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.hosts import ClockReading, corrected, drift_ppm, read_clock, told


def test_the_shortest_round_trip_counts():
    # The clock there is 1,000 ahead. The second trip took 20: the answer was given at 110 here, 1,110 there.
    reading = read_clock([(0, 1080, 100), (100, 1110, 120), (200, 1290, 300)])
    assert reading == ClockReading(t_ns=110, offset_ns=1000, uncertainty_ns=10)


@given(
    offset=st.integers(-(10**15), 10**15),
    there=st.lists(st.integers(1, 10**6), min_size=1, max_size=20),
    back=st.integers(1, 10**6),
)
def test_the_true_offset_lies_within_the_uncertainty(offset, there, back):
    trips = [(t := 10**7 * i, t + out + offset, t + out + back) for i, out in enumerate(there)]
    reading = read_clock(trips)
    assert abs(reading.offset_ns - offset) <= reading.uncertainty_ns


def test_drift_is_spread_evenly_between_the_readings():
    # Read twice, 1,000 apart: 50 behind, then 60 behind. Half way it was 55 behind; before and after, the line goes on.
    readings = [ClockReading(1000, 50, 3), ClockReading(2000, 60, 4)]
    assert corrected(np.array([1000, 1500, 2000, 3000]), readings).tolist() == [1050, 1555, 2060, 3070]
    assert drift_ppm(readings) == pytest.approx(10_000)


def test_one_reading_shifts_and_none_leaves_alone():
    times = np.array([5, 6])
    assert corrected(times, [ClockReading(0, -5, 1)]).tolist() == [0, 1]
    assert corrected(times, []) is times


def test_large_times_stay_exact():
    """Nanoseconds since boot exceed what a float holds exactly."""
    t = 2**60 + 1
    assert corrected(np.array([t]), [ClockReading(2**60, 7, 1), ClockReading(2**60 + 10**9, 7, 1)])[0] == t + 7


def test_the_note_tells_how_exact_it_is():
    note = told("b:1", [ClockReading(0, 3_200_000, 40_000), ClockReading(10**11, 3_300_000, 50_000)])
    assert "+3.200 ms" in note and "+1.0 ppm" in note and "± 0.050 ms" in note


def test_no_drift_is_claimed_within_the_uncertainty():
    readings = [ClockReading(0, 3_200_000, 40_000), ClockReading(10**9, 3_280_000, 50_000)]
    assert drift_ppm(readings) == 0 and "no drift was seen" in told("b", readings)
