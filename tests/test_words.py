"""The small words: meshes, quantities, links, paces, parts."""

import pytest

from labkit import quantity
from labkit.link import PRESETS, Link, as_link, link_seconds, wire_bytes
from labkit.mesh import Mesh
from labkit.pace import Pace, as_pace


def test_a_mesh_places_tp_neighbours_side_by_side():
    mesh = Mesh(pp=2, dp=2, tp=2)
    assert [mesh.coordinate(r) for r in (0, 1, 5)] == [
        {"pp": 0, "dp": 0, "tp": 0},
        {"pp": 0, "dp": 0, "tp": 1},
        {"pp": 1, "dp": 0, "tp": 1},
    ]
    assert mesh.group("tp", 5) == (4, 5)
    assert mesh.group("dp", 5) == (5, 7)
    assert mesh.group("pp", 5) == (1, 5)
    assert mesh.groups("dp") == ((0, 2), (1, 3), (4, 6), (5, 7))


def test_an_axis_is_found_from_its_ranks():
    mesh = Mesh(pp=2, dp=2, tp=2)
    assert mesh.axis_of((0, 1)) == "tp"
    assert mesh.axis_of((0, 2)) == "dp"
    assert mesh.axis_of((0, 1, 2, 3)) == "dp+tp"
    assert mesh.axis_of(range(8)) == "pp+dp+tp"
    assert mesh.axis_of((3,)) == "self"
    assert Mesh(dp=4).axis_of(range(4)) == "dp"


def test_rank_and_coordinate_are_inverse():
    mesh = Mesh(pp=3, dp=2, tp=4)
    assert all(mesh.rank(**mesh.coordinate(r)) == r for r in range(mesh.num_ranks))
    with pytest.raises(ValueError, match="0 to 23"):
        mesh.coordinate(24)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10ms", 0.01), ("1.5 us", 1.5e-6), ("2s", 2), ("3", 3), (0.5, 0.5), ("1e-3s", 1e-3)]
)
def test_times(text, seconds):
    assert quantity.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "rate"), [("100MB/s", 1e8), ("200Gb/s", 25e9), ("1GiB/s", 2**30), ("10Gbps", 1.25e9), (5.0, 5)]
)
def test_rates_count_bits_as_an_eighth(text, rate):
    assert quantity.bytes_per_second(text) == pytest.approx(rate)


@pytest.mark.parametrize(("text", "size"), [("16KiB", 16384), ("25MB", 25_000_000), ("7", 7), (7, 7), ("1B", 1)])
def test_sizes(text, size):
    assert quantity.num_bytes(text) == size


@pytest.mark.parametrize("text", ["10 mss", "fast", "", "nan", "inf", "1e999", "10MB"])
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match=r"is not"):
        quantity.seconds(text)


def test_bytes_on_the_wire_of_a_ring():
    """4 ranks, 8 bytes: all-reduce sends each rank's 2 x 3 chunks of 2 bytes; all-gather 3 of them."""
    assert wire_bytes("all_reduce", 8, 4) == 12
    assert wire_bytes("all_gather", 8, 4) == wire_bytes("reduce_scatter", 8, 4) == 6
    assert wire_bytes("send", 8, 2) == wire_bytes("broadcast", 8, 4) == 8
    assert link_seconds(Link(1e-3, 1000), "all_reduce", 8, 4) == (1e-3, 0.012)


def test_links_by_name_by_numbers_and_refused():
    assert as_link("pcie4").bandwidth_bytes_s == 32e9
    assert as_link("latency=5ms,bandwidth=100MB/s") == Link(0.005, 1e8)
    assert as_link({"latency_s": 1.0, "bandwidth_bytes_s": 2.0}) == Link(1.0, 2.0)
    with pytest.raises(ValueError, match="0 or more"):
        Link(-1, 1)
    with pytest.raises(ValueError, match="above 0"):
        Link(0, float("nan"))


def test_every_preset_says_where_its_numbers_come_from():
    assert all(len(link.source) > 20 for link in PRESETS.values())


def test_a_backward_is_split_evenly_unless_its_halves_are_given():
    assert as_pace("forward=20ms,backward=40ms") == Pace(0.02, 0.02, 0.02)
    assert as_pace("backward_input=1ms,backward_weight=2ms").backward_s == pytest.approx(0.003)
    with pytest.raises(ValueError, match="not both"):
        as_pace("backward=1ms,backward_input=1ms")


def test_a_ranks_stages_share_its_pace():
    assert as_pace("forward=20ms,backward=40ms,optimizer=7ms").of_stage(2) == Pace(0.01, 0.01, 0.01, 0.007)
