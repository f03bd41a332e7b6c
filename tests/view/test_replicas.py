"""Copies of a weight: their numbers are the captured ones, their distance is worked out, and both are shown."""

import example_traces as examples
import numpy as np
import pytest
import replica_traces

from labkit.analysis.replicas import drift, replicas, spread
from labkit.view.replicas import MAX_UNITS, replica_scene
from labkit.view.sync_figures import drift_figure


def test_spread_is_the_largest_difference_of_two_copies():
    assert spread(np.array([[1.0, 0.0], [1.5, 0.0], [0.75, 0.25]])) == 0.75
    assert spread(np.array([[0.1, 0.2]] * 3)) == 0.0
    assert spread(np.array([[1.0], [1.0 + 2.0**-52]])) == 2.0**-52


def test_weights_follow_from_the_gradients_in_use():
    (one,) = replicas(replica_traces.copies())
    assert (one.name, one.steps, one.ranks) == ("fc0.linear.weight", (0, 1, 2), (0, 1, 2))
    np.testing.assert_array_equal(one.weights[1], one.weights[0] - replica_traces.LR * one.grads[0])
    for step in range(3):
        np.testing.assert_allclose(one.averaged(step), one.grads[step][1], atol=1e-15)


def test_gradients_of_microbatches_are_added_up():
    (one,) = replicas(replica_traces.copies(microbatches=3))
    np.testing.assert_allclose(one.averaged(0), one.grads[0][0], atol=1e-15)


def test_averaged_copies_stay_equal_and_others_drift():
    assert drift(replica_traces.copies())["difference"].to_list() == [0.0, 0.0, 0.0]
    apart = replica_traces.copies(averaged=False)
    (one,) = replicas(apart)
    found = drift(apart)["difference"].to_list()
    assert found[0] == 0.0 and found[1] == pytest.approx(replica_traces.LR * spread(one.own_grads[0]))


def test_a_weight_without_all_its_values_is_left_out():
    trace = replica_traces.copies()
    some = type(trace)(trace.events.filter(~((trace.events["rank"] == 1) & (trace.events["op"] == "grad"))), trace.meta)
    assert replicas(some) == [] and drift(some).is_empty()


def test_the_scene_gets_the_captured_numbers():
    trace = replica_traces.copies(averaged=False)
    scene, (one,) = replica_scene(trace), replicas(trace)
    assert (scene.weight, scene.shape, scene.ranks) == ("fc0.linear.weight", [2, 4], [0, 1, 2])
    sent = {name: np.frombuffer(data, "<f4") for name, data in scene.columns.items()}
    np.testing.assert_allclose(sent["weights"].reshape(3, 3, 2, 4), one.weights, rtol=1e-6)
    np.testing.assert_allclose(sent["own"].reshape(2, 3, 2, 4), one.own_grads[:2], rtol=1e-6)
    np.testing.assert_allclose(sent["mean"].reshape(2, 2, 4), one.own_grads[:2].mean(axis=1), rtol=1e-5)
    assert [moment["after"] for moment in scene.moments] == [spread(one.weights[1]), spread(one.weights[2])]
    assert scene.unit == np.ptp(one.own_grads[0], axis=0).max(axis=1).argmax() < MAX_UNITS


def test_only_weights_that_are_there_can_be_asked_for():
    with pytest.raises(ValueError, match=r"no values of 'fc9'.*fc0\.linear\.weight"):
        replica_scene(replica_traces.copies(), weight="fc9")


@pytest.mark.parametrize(
    ("trace", "note"),
    [
        (examples.empty(), "no events"),
        (examples.one_f_one_b(), "one replica"),
        (examples.data_parallel(), "does not hold the values"),
        (replica_traces.copies(num_steps=1), "two steps"),
    ],
)
def test_without_values_a_note_says_what_to_set(trace, note):
    assert note in replica_scene(trace).missing


def test_the_drift_is_drawn_for_every_run():
    runs = {"averaged": replica_traces.copies(), "not averaged": replica_traces.copies(averaged=False)}
    figure = drift_figure(runs)
    assert [list(line.y) for line in figure.data] == [drift(run)["difference"].to_list() for run in runs.values()]
    assert "no values" in drift_figure({"one": examples.data_parallel()}).layout.annotations[0].text.replace(
        "<br>", " "
    )
