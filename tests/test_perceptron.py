"""The digits network in numpy: hand-worked values, and what it needs of a trace."""

import math

import numpy as np
import pytest

from labkit.analysis.gradient_noise import gradient_noise
from labkit.analysis.landscape import descent_on, losses_on, plane_through
from labkit.analysis.perceptron import Perceptron, accuracy, activations, mean_loss, perceptrons, probabilities
from labkit.trace import Meta, from_events

# Two layers: 2 -> 2 -> 2. For x = (1, 2): x W0ᵀ + b0 = (1 - 2, 3 + 1) = (-1, 4), ReLU (0, 4), then (0 + 1, 4).
TWO = Perceptron(
    (np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])),
    (np.array([0.0, 1.0]), np.array([1.0, 0.0])),
)
X = np.array([[1.0, 2.0]])


def test_layers_with_a_relu_behind_all_but_the_last():
    hidden, scores = activations(TWO, X)
    np.testing.assert_array_equal(hidden, [[0, 4]])
    np.testing.assert_array_equal(scores, [[1, 4]])


def test_probabilities_loss_and_accuracy():
    share = math.exp(1) / (math.exp(1) + math.exp(4))
    np.testing.assert_allclose(probabilities(TWO, X), [[share, 1 - share]])
    assert mean_loss(TWO, X, np.array([0])) == pytest.approx(-math.log(share))
    assert accuracy(TWO, np.vstack([X, X]), np.array([1, 0])) == 0.5


def test_scores_too_large_for_exp_still_have_a_loss():
    steep = TWO.at(1000 * TWO.flat)
    assert math.isfinite(mean_loss(steep, X, np.array([0])))


def test_a_point_and_its_network_are_the_same_thing():
    assert TWO.num_parameters == len(TWO.flat) == 12
    again = TWO.at(TWO.flat)
    for one, other in zip((*again.weights, *again.biases), (*TWO.weights, *TWO.biases)):
        np.testing.assert_array_equal(one, other)


def value(op, step, layer, numbers, **more):
    numbers = np.asarray(numbers, float)
    kept = dict(op=op, layer=layer, shape=list(numbers.shape), dtype="float64", data=numbers.tobytes())
    return dict(rank=0, kind="value", step=step, microbatch=0, start_ns=step, end_ns=step) | kept | more


def test_weights_of_every_step_and_of_its_first_forward():
    rows = [value("weight", 1, "fc0.linear.weight", [[5.0]]), value("weight", 0, "fc0.linear.weight", [[3.0]])]
    rows += [value("weight", step, "fc0.linear.bias", [step]) for step in (0, 1)]
    rows += [value("weight", 0, "fc0.linear.weight", [[9.0]], microbatch=1, start_ns=7)]
    found = perceptrons(from_events(rows, Meta("measured", layers=("fc0",))))
    assert [network.flat.tolist() for network in found] == [[3.0, 0.0], [5.0, 1.0]]


def test_a_missing_weight_is_told():
    rows = [value("weight", 0, "fc0.linear.weight", [[3.0]])]
    with pytest.raises(ValueError, match="value_limit_bytes"):
        perceptrons(from_events(rows, Meta("measured", layers=("fc0",))))


@pytest.mark.parametrize("plan", [{"tp": 2}, {"pp": 2}, {"zero": 3}])
def test_a_rank_with_only_its_part_of_the_weights_is_told(plan):
    rows = [value("weight", 0, f"fc0.linear.{part}", [1.0]) for part in ("weight", "bias")]
    with pytest.raises(ValueError, match="no tp, pp or zero"):
        perceptrons(from_events(rows, Meta("measured", layers=("fc0",), plan=plan)))


# ---- the plane through paths


def networks(*flats):
    return [TWO.at(np.array([*flat, *([0.0] * (12 - len(flat)))])) for flat in flats]


def test_a_plane_through_points_that_lie_in_one_holds_them_all():
    path = networks((0, 0, 1), (4, 0, 1), (4, 3, 1), (0, 3, 1))
    plane = plane_through([path])
    assert plane.share == pytest.approx(1)
    for network in path:
        np.testing.assert_allclose(plane.network(plane.place(network)).flat, network.flat, atol=1e-12)
    apart = np.linalg.norm(plane.place(path[0]) - plane.place(path[2]))
    assert apart == pytest.approx(5)  # distances in the plane are those between the networks


def test_what_leaves_the_plane_counts_against_its_share():
    # Around their mean: 2 x 2² + 2 x 1² along two axes, 2 x 0.5² along a third.
    path = networks((2,), (-2,), (0, 1), (0, -1), (0, 0, 0.5), (0, 0, -0.5))
    assert plane_through([path]).share == pytest.approx(10 / 10.5)


def test_points_on_a_line_span_no_plane():
    with pytest.raises(ValueError, match="line"):
        plane_through([networks((0,), (1,), (2,))])


def test_the_map_and_the_path_are_losses_of_real_networks():
    path = networks((0, 0), (1, 0), (0, 2))
    plane, labels = plane_through([path]), np.array([0])
    found = descent_on(plane, path, X, labels)
    assert found.losses == pytest.approx([mean_loss(network, X, labels) for network in path])
    across, up = found.places[:, 0], found.places[:, 1]
    grid = losses_on(plane, across, up, X, labels)
    assert np.diag(grid) == pytest.approx(found.losses)  # column k, row k is the place of network k


# ---- gradient noise


def accumulated(gradients, batch):
    rows = [value("grad_local", 0, "fc0.linear.weight", [[g]], microbatch=k) for k, g in enumerate(gradients)]
    return from_events(rows, Meta("measured", plan={"global_batch": batch}))


def test_noise_of_microbatches_and_of_their_means():
    # 1, 3, 1, 3, 3, 5, 3, 5: mean 3, distances 2, 0, 2, 0, 0, 2, 0, 2; pairs 2, 2, 4, 4; fours 2, 4.
    table = gradient_noise(accumulated([1, 3, 1, 3, 3, 5, 3, 5], 80))
    assert table["batch"].to_list() == [10, 20, 40] and table["num_batches"].to_list() == [8, 4, 2]
    assert table["noise"].to_list() == pytest.approx([math.sqrt(2) / 3, 1 / 3, 1 / 3])


def test_random_gradients_keep_to_sampling_theory():
    """Sums over all ways to draw 2 of 4 numbers: the mean squared distance is as `expected` says, exactly."""
    numbers = [1.0, 2.0, 4.0, 9.0]
    pairings = [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2)]  # the three ways to cut four into two pairs
    tables = [gradient_noise(accumulated([numbers[i] for i in order], 4)) for order in pairings]
    squares = [table["noise"][1] ** 2 for table in tables]
    assert sum(squares) / 3 == pytest.approx(tables[0]["expected"][1] ** 2)


def test_one_microbatch_has_no_noise_to_tell():
    assert gradient_noise(accumulated([1.0], 4)).is_empty()
