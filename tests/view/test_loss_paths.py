"""Paths lie where the weights were; the map is the loss of the weights at each place."""

import example_traces as examples
import numpy as np
import pytest
import weight_traces as weights

from labkit.analysis.landscape import plane_through
from labkit.analysis.perceptron import mean_loss, perceptrons
from labkit.digits import digits
from labkit.view.loss_paths import loss_paths


def runs():
    return {"small": weights.trained(5, hidden=4, batch=10), "large": weights.trained(4, hidden=4, batch=100)}


def test_each_run_is_a_path_with_the_loss_and_accuracy_of_its_own_networks():
    scene = loss_paths(runs())
    assert scene.paths == [{"name": "small", "batch": 10}, {"name": "large", "batch": 100}]
    for number, trace in enumerate(runs().values()):
        losses = np.frombuffer(scene.columns[f"loss{number}"], "<f4")
        assert losses == pytest.approx([mean_loss(one, *digits()) for one in perceptrons(trace)], rel=1e-4)
        assert len(scene.columns[f"place{number}"]) == 2 * 4 * len(losses)
    assert scene.num_images == 1797 and 0.5 < scene.share <= 1


def test_the_map_holds_all_paths_and_the_loss_of_every_corner():
    scene = loss_paths(runs())
    left, right, bottom, top = scene.extent
    for number in range(2):
        places = np.frombuffer(scene.columns[f"place{number}"], "<f4").reshape(-1, 2)
        assert (places > [left, bottom]).all() and (places < [right, top]).all()
    plane = plane_through([perceptrons(trace) for trace in runs().values()])
    heights = np.frombuffer(scene.columns["map"], "<f4").reshape(scene.grid[::-1])
    for row, col, place in ((0, 0, (left, bottom)), (-1, 0, (left, top)), (0, -1, (right, bottom))):
        assert heights[row, col] == pytest.approx(mean_loss(plane.network(np.array(place)), *digits()), rel=1e-4)


def test_without_weights_or_a_plane_a_note_says_why():
    assert "value_limit_bytes" in loss_paths({"run": examples.one_f_one_b()}).missing
    assert "line" in loss_paths({"run": weights.trained(1)}).missing
    with pytest.raises(ValueError, match="at least one"):
        loss_paths({})
