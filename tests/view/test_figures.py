"""Charts are plain figures: pure, offline, and honest about missing data."""

import example_traces as examples
import memory_traces
import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest

from labkit import analysis
from labkit.comparison import Predicted
from labkit.trace import Meta, from_events
from labkit.view.batch import batch_figure, microbatch_samples
from labkit.view.chart import BAD, MIME, ChartView, chart_widget, colour_pairs
from labkit.view.figures import breakdown_figure, loss_figure, memory_figure, sync_figure
from labkit.view.run_figures import efficiency_figure, predicted_figure, scaling_figure
from labkit.view.theme import HELD_LOOKS, LOOKS, contrast

IMAGES = np.arange(64 * 4).reshape(64, 2, 2)


def test_the_loss_is_drawn_as_it_is():
    trace = examples.one_f_one_b(num_steps=3)
    figure = loss_figure(trace)
    assert isinstance(figure, go.Figure)
    assert tuple(figure.data[0].y) == trace.meta.losses
    assert "paced" in figure.layout.title.subtitle.text


def test_without_losses_the_chart_says_so():
    figure = loss_figure(examples.empty())
    assert not figure.data and "no losses" in figure.layout.annotations[0].text


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_chart_shows_as_a_widget_or_plotly_and_offers_no_upload(theme):
    formatter = pytest.importorskip("IPython.core.formatters").DisplayFormatter()
    bundle, _ = formatter.format(loss_figure(examples.one_f_one_b(), theme=theme))  # as a notebook does it
    assert set(bundle) == {MIME, "text/plain", "application/vnd.jupyter.widget-view+json"}
    assert bundle[MIME]["config"]["showSendToCloud"] is False


def test_each_microbatch_is_shown_once_with_the_samples_it_had():
    loads = microbatch_samples(examples.one_f_one_b(), step=0)
    assert len(loads) == 8
    assert loads[1] == ("rank 0 · microbatch 1", list(range(8, 16)))


def test_each_replica_shows_its_own_samples():
    loads = microbatch_samples(examples.data_parallel(), step=1)
    assert [label for label, _ in loads] == [f"rank {rank} · microbatch 0" for rank in range(4)]


def test_thumbnails_are_the_images_of_the_samples():
    mosaic = np.array(batch_figure(examples.one_f_one_b(), IMAGES).data[0].z)
    assert mosaic.shape == (8 * 3 - 1, 8 * 3 - 1)
    assert (mosaic[3:5, 3:5] == IMAGES[9]).all()  # second microbatch, second image
    assert np.isnan(mosaic[2]).all()


def test_without_samples_the_batch_says_so():
    assert "names its samples" in batch_figure(examples.mixed(), IMAGES).layout.annotations[0].text


def test_the_breakdown_is_the_analysis_in_bars_that_add_up():
    trace = examples.data_parallel()
    figure, table = breakdown_figure(trace), analysis.breakdown(trace)
    assert len(figure.data) == 4
    total = np.sum([bar.x for bar in figure.data], axis=0)
    np.testing.assert_allclose(total, table["window_ns"].to_numpy() / 1e6)
    np.testing.assert_allclose(figure.data[2].x, table["exposed_sync_ns"].to_numpy() / 1e6)


def test_bars_are_told_apart_by_pattern_too():
    patterns = [bar.marker.pattern.shape for bar in breakdown_figure(examples.data_parallel()).data]
    assert len(set(patterns)) >= 3


def test_syncs_are_drawn_by_bytes_and_time():
    figure = sync_figure(examples.one_f_one_b())
    assert [data.name for data in figure.data] == ["pp message"]
    assert set(figure.data[0].x) == {64 * 1024}
    assert max(figure.data[0].y) <= 2000  # 2 ms a message
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_syncs_without_a_duration_are_counted_not_drawn():
    rows = [
        dict(rank=rank, kind="sync", op="all_reduce", axis="dp", group=[0, 1], seq=seq, start_ns=0, end_ns=end)
        | dict(size_bytes=8)
        for rank in range(2)
        for seq, end in ((0, 5), (1, 0))
    ]
    figure = sync_figure(from_events(rows, Meta("paced", num_ranks=2)))
    assert len(figure.data[0].x) == 1 and "1 syncs that took no time" in figure.layout.annotations[0].text
    none = sync_figure(from_events(rows[1::2], Meta("paced", num_ranks=2)))
    assert not none.data and "set `link`" in none.layout.annotations[0].text.replace("<br>", " ")


def test_memory_is_that_of_the_peak():
    figure = memory_figure(memory_traces.piles(), limit_bytes=500)
    held = {bar.name: list(bar.x) for bar in figure.data}
    # both peak at the first backward of the second step, when the optimizer's state is there too
    assert held["parameters"] == [100, 200] and held["optimizer state"] == [200, 400]
    total = np.sum([bar.x for bar in figure.data], axis=0)
    assert list(total) == list(analysis.memory_peaks(memory_traces.piles()).values())
    assert figure.layout.shapes[0].x0 == 500


@pytest.mark.parametrize("make", [breakdown_figure, sync_figure, memory_figure])
def test_charts_of_nothing_say_so(make):
    figure = make(examples.empty())
    assert not figure.data and figure.layout.annotations[0].text


@pytest.mark.parametrize("make", [breakdown_figure, sync_figure, memory_figure])
@pytest.mark.parametrize("trace", [examples.single(), examples.dense(4000)])
def test_charts_survive_odd_traces_and_name_their_source(make, trace):
    assert "measured" in make(trace, theme="dark").layout.title.subtitle.text


def test_the_loss_can_be_drawn_against_time():
    trace = examples.one_f_one_b(num_steps=3)
    ends = trace.of("step").group_by("step").agg(end=pl.col("end_ns").max()).sort("step")["end"]
    figure = loss_figure(trace, by="time")
    assert list(figure.data[0].x) == pytest.approx([end / 1e9 for end in ends])  # the trace begins at 0
    assert figure.layout.xaxis.title.text == "time, s"
    without = trace.with_meta(losses=(1.0,) * 9)
    assert "when its steps ended" in loss_figure(without, by="time").layout.annotations[0].text.replace("<br>", " ")


def test_bandwidth_is_that_of_the_analysis():
    trace = examples.one_f_one_b()
    figure = sync_figure(trace, show="bandwidth")
    rates = analysis.bandwidth(trace).drop_nulls("bus_bytes_s")["bus_bytes_s"] / 1e6
    assert sorted(figure.data[0].y) == pytest.approx(sorted(rates))


def run(num_ranks: int, step_ms: float):
    rows = [
        dict(rank=rank, kind="step", step=0, start_ns=0, end_ns=round(step_ms * examples.MS))
        for rank in range(num_ranks)
    ]
    plan = {"task": "digits", "dp": num_ranks, "global_batch": 10}
    return from_events(rows, Meta("paced", plan=plan, num_ranks=num_ranks))


def test_scaling_stands_beside_the_ideal():
    figure = scaling_figure([run(1, 100), run(4, 31.25)])
    ideal, found = figure.data
    assert list(ideal.x) == list(found.x) == [1, 4]
    assert list(ideal.y) == pytest.approx([100, 400]) and list(found.y) == pytest.approx([100, 320])
    assert list(efficiency_figure([run(1, 100), run(4, 31.25)]).data[0].y) == pytest.approx([100, 80])


def test_a_prediction_stands_beside_the_run_with_its_error():
    trace = run(2, 100)
    figure = predicted_figure(
        {"A": (trace, Predicted(100e6, 110e6, "wall")), "B": (trace, Predicted(50e6, 49e6, "wall"))}
    )
    predicted, measured = figure.data
    assert list(predicted.x) == [110, 49] and list(measured.x) == [100, 50]
    assert list(predicted.text) == ["+10.0 %", "-2.0 %"]


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        (lambda: scaling_figure([examples.empty()]), "both a step time and a batch"),
        (lambda: efficiency_figure([run(1, 100)]), "at least two"),
        (
            lambda: predicted_figure({"A": (run(1, 1), Predicted(1, None, "wall", problem="other width"))}),
            "other width",
        ),
    ],
)
def test_charts_of_runs_that_cannot_be_compared_say_so(figure, told):
    assert told in figure().layout.annotations[0].text.replace("<br>", " ")


def test_a_chart_on_a_page_carries_both_themes_and_no_bundle():
    view = chart_widget(breakdown_figure(examples.data_parallel()))
    assert isinstance(view, ChartView) and set(view.templates) == {"light", "dark"}
    assert view.label.startswith("Time of each rank. digits, dp 4")
    assert view.figure["config"]["showSendToCloud"] is False
    assert len(view._esm) + len(str(view.figure)) < 100_000  # plotly itself has 5 MB


def test_every_fill_of_the_theme_has_its_like_in_the_other():
    pairs = {light: dark for light, dark, *_ in colour_pairs()}
    assert set(pairs) == {look.light for look in (*LOOKS, *HELD_LOOKS)} | {BAD["light"]}
    assert all(pairs[look.light] == look.dark for look in LOOKS)
    assert all(contrast(one[k], one[k + 2]) >= 4.5 for one in colour_pairs() for k in (0, 1))


def test_syncs_whose_other_ranks_are_missing_are_not_called_absent():
    row = dict(rank=0, kind="sync", op="all_reduce", axis="dp", group=[0, 1], seq=0, start_ns=0, end_ns=5, size_bytes=8)
    told = (
        sync_figure(from_events([row], Meta("imported", num_ranks=1))).layout.annotations[0].text.replace("<br>", " ")
    )
    assert "Other ranks of its syncs are not in it" in told and "holds no syncs" not in told
