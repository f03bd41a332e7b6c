"""Charts are plain figures: pure, offline, and honest about missing data."""

import example_traces as examples
import memory_traces
import numpy as np
import plotly.graph_objects as go
import pytest

from labkit import analysis
from labkit.trace import Meta, from_events
from labkit.view.batch import batch_figure, microbatch_samples
from labkit.view.figures import MIME, breakdown_figure, loss_figure, memory_figure, sync_figure

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
def test_a_chart_shows_as_plotly_mime_only_and_offers_no_upload(theme):
    formatter = pytest.importorskip("IPython.core.formatters").DisplayFormatter()
    bundle, _ = formatter.format(loss_figure(examples.one_f_one_b(), theme=theme))  # as a notebook does it
    assert set(bundle) == {MIME, "text/plain"}
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
