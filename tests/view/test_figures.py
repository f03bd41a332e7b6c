"""Charts are plain figures: pure, offline, and honest about missing data."""

import example_traces as examples
import numpy as np
import plotly.graph_objects as go
import pytest

from labkit.view.batch import batch_figure, microbatch_samples
from labkit.view.figures import MIME, loss_figure

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
