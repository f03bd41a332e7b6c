"""Devices, links and collectives: hand-worked times, measured sweeps, clear refusals."""

import csv
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from labkit.cluster import PRESETS, Cluster, ClusterError, Curve, Device, Group, all_reduce_s, as_cluster, group_of
from labkit.cluster import load as load_cluster
from labkit.cluster import save as save_cluster
from labkit.cluster.collective import measured_all_reduce_s
from labkit.link import Link
from labkit.mesh import Mesh

FACTS = Path(__file__).resolve().parents[1].parent / "shared" / "facts"

LINK = Link(10e-6, 1e9)


def device(**changes) -> Device:
    values = {"name": "d", "peak_flops_s": {"bfloat16": 1e12}, "memory_bytes": 1e9, "memory_bandwidth_bytes_s": 1e9}
    return Device(**(values | changes))


@pytest.mark.parametrize(
    ("algorithm", "seconds"),
    [
        ("ring", 6 * 10e-6 + 12e-3),  # 2 (4 - 1) hops; 2 x 3/4 x 8 MB at 1 GB/s
        ("tree", 4 * 10e-6 + 16e-3),  # 2 log2(4) hops; 2 x 8 MB
        ("nvswitch", 2 * 10e-6 + 10e-3),  # 2 hops; 5/4 x 8 MB
    ],
)
def test_all_reduce_of_8_mb_over_4_ranks_by_hand(algorithm, seconds):
    assert all_reduce_s(LINK, 8e6, 4, algorithm) == pytest.approx(seconds)


def test_one_rank_or_no_bytes_takes_no_time():
    assert all_reduce_s(LINK, 8e6, 1) == 0
    assert all_reduce_s(LINK, 0, 4) == 0


@pytest.mark.parametrize("size", [-1, math.nan, math.inf])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ValueError, match="finite number of bytes"):
        all_reduce_s(LINK, size, 4)


def test_a_curve_is_straight_between_its_points():
    curve = Curve(1.0, (10, 20), (2.0, 3.0))
    assert [curve.seconds(size) for size in (5, 10, 15, 20, 40)] == pytest.approx([1.5, 2, 2.5, 3, 6])


@pytest.mark.parametrize(
    ("sizes", "times"),
    [((), ()), ((1,), (1, 2)), ((2, 1), (1, 2)), ((1, 2), (1, math.nan)), ((0, 1), (1, 1))],
)
def test_a_curve_that_is_none_is_refused(sizes, times):
    with pytest.raises(ValueError, match="curve"):
        Curve(0, sizes, times)


def test_a_number_of_ranks_between_two_curves_lies_between():
    curves = {2: Curve(0, (10,), (2.0,)), 4: Curve(0, (10,), (4.0,))}
    assert measured_all_reduce_s(curves, 10, 3) == pytest.approx(3)
    assert measured_all_reduce_s(curves, 10, 8) == pytest.approx(4 * (7 / 8) / (3 / 4))


def test_matrix_products_get_faster_with_size():
    a100 = PRESETS["a100"].device
    tiles = 4096 * 4096 / (128 * 256)
    assert a100.efficiency(4096, 4096, 4096) == pytest.approx(0.919 * 4096 / 4273.8 * tiles / (tiles + 54), rel=1e-4)
    assert a100.efficiency(64, 64, 64) < a100.efficiency(1024, 1024, 1024) < a100.efficiency(8192, 8192, 8192) < 0.919


def test_a_pass_over_memory():
    assert device(memory_efficiency=0.5).stream_s(1e9) == pytest.approx(2)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "fast", True])
@pytest.mark.parametrize(
    "name",
    ["memory_bytes", "memory_bandwidth_bytes_s", "half_depth", "num_units", "forward_stretch", "backward_stretch"],
)
def test_a_rate_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"device 'd': {name}=.*give a finite number above 0"):
        device(**{name: value})


def test_an_unknown_dtype_names_the_known():
    with pytest.raises(ValueError, match=r"no rate for 'int8': known are bfloat16"):
        device().matmul_s(1, 1, 1, dtype="int8")


def test_groups_fill_nodes_in_order():
    mesh = Mesh(pp=2, dp=4, tp=4)
    assert group_of("tp", mesh, 8) == Group(4, 4)
    assert group_of("dp", mesh, 8) == Group(4, 2)
    assert group_of("pp", mesh, 8) == Group(2, 1)
    assert group_of("dp", mesh, 8).num_nodes == 2


def test_a_ring_through_nodes_uses_the_links_of_all_its_ranks():
    cluster = Cluster(name="c", device=device(), gpus_per_node=8, within=Link(0, 300e9), between=Link(0, 25e9))
    alone = cluster.collective_s("all_reduce", 1e9, "dp", Group(4, 1))
    assert alone == pytest.approx(1.5e9 / 25e9)
    assert cluster.collective_s("all_reduce", 1e9, "dp", Group(32, 8)) == pytest.approx(2 * 31 / 32 * 1e9 / 200e9)


def test_half_an_all_reduce():
    cluster = Cluster(name="c", device=device(), within=LINK)
    whole = cluster.collective_s("all_reduce", 1e6, "tp", Group(4, 4))
    for op in ("all_gather", "reduce_scatter", "all_to_all"):
        assert cluster.collective_s(op, 1e6, "tp", Group(4, 4)) == pytest.approx(whole / 2)


def test_a_missing_link_is_named():
    cluster = PRESETS["pcie4"]
    with pytest.raises(ClusterError, match=r"'pcie4' has no link between nodes, which 8 ranks along tp need"):
        cluster.collective_s("all_reduce", 1e6, "tp", Group(8, 4))


def test_a_link_given_for_an_axis_wins():
    cluster = replace(PRESETS["pcie4"], axis_links={"tp": LINK})
    assert cluster.collective_s("all_reduce", 8e6, "tp", Group(4, 1)) == pytest.approx(6 * 10e-6 + 12e-3)


@pytest.mark.parametrize("name", PRESETS)
def test_every_number_of_a_preset_has_a_source(name):
    cluster = PRESETS[name]
    for field in fields(Device):
        given = getattr(cluster.device, field.name)
        if field.name not in ("name", "sources") and given != field.default:
            assert cluster.device.sources.get(field.name), f"{name}: {field.name} has no source"
    for where in ("within", "between"):
        link = getattr(cluster, where)
        assert link is None or (link.source and cluster.sources[where])
    for share in ("within_efficiency", "between_efficiency"):
        assert getattr(cluster, share) == 1 or cluster.sources[share]


@pytest.mark.parametrize("name", PRESETS)
def test_a_cluster_survives_its_file(name, tmp_path):
    path = save_cluster(PRESETS[name], tmp_path / "machine.json")
    assert load_cluster(path) == PRESETS[name] == as_cluster(str(path))


def test_unknown_clusters_and_broken_files_are_refused(tmp_path):
    with pytest.raises(ClusterError, match="did you mean 'a100'"):
        as_cluster("a10")
    with pytest.raises(ClusterError, match="cannot read"):
        as_cluster(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text('{"name": "x"}')
    with pytest.raises(ClusterError, match="is no cluster"):
        as_cluster(str(tmp_path / "bad.json"))


def test_nvswitch_reaches_the_measured_bus_bandwidth():
    """482 GB/s on 8 GPUs with in-network reduction: bus bandwidth is S/t x 2 (n-1)/n."""
    seconds = PRESETS["h100"].collective_s("all_reduce", 16e9, "tp", Group(8, 8))
    assert 16e9 / seconds * 2 * 7 / 8 == pytest.approx(482e9, rel=0.01)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_all_reduce_sweeps(num_ranks):
    path = FACTS / f"a100_nvlink_allreduce_{num_ranks}gpu.csv"
    if not path.is_file():
        pytest.skip("the handed sweeps are not here")
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    for column in (3, 5):  # out of place, in place
        errors = []
        for row in rows:
            predicted = PRESETS["a100"].collective_s("all_reduce", float(row[0]), "tp", Group(num_ranks, num_ranks))
            errors.append(abs(predicted / (float(row[column]) * 1e-9) - 1))
        assert sum(errors) / len(errors) < 0.01
        assert max(errors) < 0.15
