"""Charts of learning show the numbers of their tables."""

import example_traces as examples
import numpy as np
import pytest
import weight_traces as weights

from labkit.analysis.learning import learning
from labkit.trace import Meta, from_events
from labkit.view.learning_figures import accuracy_figure, noise_figure


def accumulated(gradients, batch):
    """One step of microbatches, each with a gradient of its own."""
    rows = [
        dict(rank=0, kind="value", op="grad_local", step=0, microbatch=k, layer="fc0.linear.weight", shape=[1, len(g)],
             start_ns=k, end_ns=k, dtype="float64", data=np.array(g, float).tobytes())
        for k, g in enumerate(gradients)
    ]  # fmt: skip
    return from_events(rows, Meta("measured", plan={"task": "digits", "global_batch": batch}))


@pytest.mark.parametrize(("by", "column", "unit"), [("images", "images", 1), ("time", "time_ns", 1e3)])
def test_accuracy_against_images_or_time(by, column, unit):
    runs = {"one": weights.trained(5), "other": weights.trained(4, hidden=4)}
    figure = accuracy_figure(runs, by=by)
    assert [line.name for line in figure.data] == ["one", "other"]
    for line, trace in zip(figure.data, runs.values()):
        table = learning(trace)
        assert list(line.x) == pytest.approx((table[column] / unit).to_list())
        assert list(line.y) == pytest.approx((100 * table["accuracy"]).to_list())
    assert "measured" in figure.layout.title.subtitle.text


def test_noise_beside_what_theory_expects():
    figure = noise_figure(accumulated([[1.0], [3.0], [3.0], [1.0]], 8))
    expected, found = figure.data
    assert list(found.x) == [2, 4] and list(found.y) == pytest.approx([50, 0])
    assert list(expected.y) == pytest.approx([50, 50 * (1 / 2 * (8 - 4) / (8 - 2)) ** 0.5])


def test_what_is_missing_is_said_in_its_place():
    assert "value_limit_bytes" in accuracy_figure({"run": examples.one_f_one_b()}).layout.annotations[0].text.replace(
        "<br>", " "
    )
    assert "microbatches" in noise_figure(examples.one_f_one_b()).layout.annotations[0].text.replace("<br>", " ")
