"""The digits network in numpy says what torch said: losses, outputs, gradients' mean."""

import numpy as np
import pytest

import labkit
from labkit.analysis.gradient_noise import microbatch_gradients
from labkit.analysis.perceptron import activations, captured, mean_loss, perceptrons
from labkit.digits import digits

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_losses_and_outputs_are_torchs(layers):
    plan = labkit.Plan(
        layers=layers, width=8, global_batch=24, steps=4, lr=0.5, dtype="float64", value_limit_bytes=8192
    )
    trace = labkit.run(plan)
    images, labels = digits()
    loads = trace.of("load").sort("step")["samples"].to_list()
    for samples, network, loss, outputs in zip(loads, perceptrons(trace), trace.meta.losses, captured(trace, "output")):
        assert mean_loss(network, images[samples], labels[samples]) == pytest.approx(loss, abs=1e-12)
        for number, output in enumerate(activations(network, images[samples])):
            np.testing.assert_allclose(output, outputs[f"fc{number}"], atol=1e-12)


def test_microbatches_gradients_average_to_the_steps_gradient():
    plan = labkit.Plan(
        layers=2, width=8, global_batch=64, microbatches=8, steps=1, dtype="float64", value_limit_bytes=8192
    )
    trace = labkit.run(plan)
    whole = captured(trace, "grad")[0]
    apart = microbatch_gradients(trace)
    assert apart.shape == (8, 610)
    mean = np.concatenate([whole[name].ravel() for name in sorted(whole)])
    scale = apart.sum(axis=0) @ mean / (mean @ mean)
    np.testing.assert_allclose(apart.sum(axis=0), scale * mean, atol=1e-12)
    assert scale == pytest.approx(1)  # each is captured as its share of the mean
