"""How often and how much: per axis, against layers, against latency; each number is the trace's."""

import example_traces as examples
import pytest

from labkit import analysis
from labkit.link import Link
from labkit.trace import Meta, from_events
from labkit.view.traffic_figures import latency_figure, sync_count_figure, traffic_figure

MS = 1_000_000


def chain(num_syncs: int, *, axis="tp", layers=2, link=None):
    """Two ranks that work 1 ms before each of so many all_reduces in a row."""
    rows = []
    for rank in (0, 1):
        common = dict(rank=rank, step=0)
        for seq in range(num_syncs):
            at = 2 * MS * seq
            rows.append(dict(kind="forward", layer=f"fc{seq}", start_ns=at, end_ns=at + MS, **common))
            whole = dict(start_ns=at + MS, end_ns=at + 2 * MS, op="all_reduce", axis=axis, group=[0, 1], seq=seq)
            rows += [dict(kind=kind, size_bytes=2048, **whole, **common) for kind in ("sync", "wait")]
        rows.append(dict(kind="step", start_ns=0, end_ns=2 * MS * num_syncs, **common))
    plan = {axis: 2, "layers": layers, "link": link, "time_scale": 1.0}
    return from_events(rows, Meta("paced", plan=plan, num_ranks=2))


def test_each_axis_has_its_syncs_and_their_bytes():
    count, size = traffic_figure(chain(3)).data
    assert list(count.y) == ["tp"] and list(count.x) == [3]
    assert list(size.x) == [pytest.approx(3 * 2048 / 1024)] and size.text[0] == "6"


def test_axes_come_in_the_order_tp_dp_pp():
    trace = examples.mixed()
    count, size = traffic_figure(trace).data
    totals = analysis.sync_totals(trace)
    assert set(count.y) == set(totals) and count.y[0] == "tp"
    assert list(size.x) == pytest.approx([totals[axis]["bytes"] / 1024 for axis in size.y])


def test_without_syncs_it_says_so():
    assert "holds no syncs" in traffic_figure(examples.empty()).layout.annotations[0].text


def test_points_of_every_method_and_the_rule_they_follow():
    runs = {
        "data": [chain(1, axis="dp", layers=n) for n in (2, 9)],
        "tensor": [chain(n - 1, layers=n) for n in (9, 2, 5)],
    }
    data, tensor = sync_count_figure(runs).data
    assert (tensor.x, tensor.y) == ((2, 5, 9), (1, 4, 8)) and tensor.name == "tensor: 1 per layer − 1"
    assert data.y == (1, 1) and data.name == "data: 1 per step"
    assert data.marker.symbol != tensor.marker.symbol and data.line.color != tensor.line.color


def test_lines_rise_by_the_number_of_syncs_and_points_are_the_runs_own():
    link = {"tp": {"latency_s": 1e-3, "bandwidth_bytes_s": 1e15, "name": "own", "source": ""}}
    runs = {"many": chain(10), "few": chain(2)}
    figure = latency_figure(runs, latencies_s=(0.0, 1e-3), really={"many": chain(10, link=link)})
    many, point, few = figure.data
    assert many.y[1] - many.y[0] == pytest.approx(10, rel=0.01) and few.y[1] - few.y[0] == pytest.approx(2, rel=0.01)
    assert (point.x, point.y) == ((1.0,), (20.0,)) and "really run" in point.name
    assert many.x == (0, 1) and "replayed" in figure.layout.title.subtitle.text
    assert Link(**link["tp"]).latency_s == 1e-3
