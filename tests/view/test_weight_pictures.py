"""Weights go over as they were captured; what is said about an image is worked out from them."""

import example_traces as examples
import numpy as np
import polars as pl
import weight_traces as weights

from labkit.analysis.perceptron import captured, perceptrons, probabilities
from labkit.digits import digits
from labkit.view.weight_pictures import MAX_UNITS, first_of_each_digit, weight_pictures


def sent(scene, name, shape):
    return np.frombuffer(scene.columns[name], "<f4").reshape(shape)


def test_every_step_sends_its_own_weights_and_gradients():
    trace = weights.trained(4)
    scene = weight_pictures(trace)
    assert scene.units == [f"digit {k}" for k in range(10)] and scene.is_output
    for step, (kept, grads) in enumerate(zip(captured(trace, "weight"), captured(trace, "grad"))):
        np.testing.assert_allclose(sent(scene, "weights", (4, 10, 64))[step], kept["fc0.linear.weight"], rtol=1e-6)
        np.testing.assert_allclose(sent(scene, "grads", (4, 10, 64))[step], grads["fc0.linear.weight"], rtol=1e-6)
    assert (scene.num_parameters, scene.batch, scene.lr) == (650, 20, 0.5)
    assert scene.losses == list(trace.meta.losses)


def test_the_images_are_one_of_each_digit_of_the_first_batch():
    trace = weights.trained(2)
    labels = digits()[1]
    chosen = first_of_each_digit(trace)
    assert [labels[sample] for sample in chosen] == sorted(set(labels[:20]))
    assert all(sample == list(labels).index(labels[sample]) for sample in chosen)  # the first of its kind


def test_probabilities_are_those_of_each_steps_network():
    trace = weights.trained(3)
    scene = weight_pictures(trace, samples=[7, 1000])
    assert scene.samples == [[7, int(digits()[1][7])], [1000, int(digits()[1][1000])]]
    found = sent(scene, "probabilities", (3, 2, 10))
    np.testing.assert_allclose(found.sum(axis=2), 1, rtol=1e-6)
    np.testing.assert_allclose(found[2], probabilities(perceptrons(trace)[2], digits()[0][[7, 1000]]), rtol=1e-5)


def test_a_hidden_layer_shows_its_first_units():
    trace = weights.trained(2, hidden=20)
    scene = weight_pictures(trace, samples=[0])
    assert scene.units[-1] == f"unit {MAX_UNITS - 1}" and not scene.is_output
    shown = sent(scene, "weights", (2, MAX_UNITS, 64))[1]
    np.testing.assert_allclose(shown, perceptrons(trace)[1].weights[0][:MAX_UNITS], rtol=1e-6)
    assert (sent(scene, "activations", (2, 1, MAX_UNITS)) >= 0).all()  # behind a ReLU


def test_another_optimizer_has_no_simple_rule_to_show():
    trace = weights.trained(2)
    adam = trace.with_meta(plan={**trace.meta.plan, "optimizer": "adam"})
    assert weight_pictures(adam).lr is None


def test_without_weights_a_note_says_what_to_set():
    for trace in (examples.empty(), examples.one_f_one_b()):
        assert "value_limit_bytes" in weight_pictures(trace).missing


def test_a_run_that_broke_off_within_a_step_says_so():
    whole = weights.trained(3)
    broken = type(whole)(whole.events.filter(~((pl.col("op") == "grad") & (pl.col("step") == 2))), whole.meta)
    assert "gradients of its last step" in weight_pictures(broken).missing
