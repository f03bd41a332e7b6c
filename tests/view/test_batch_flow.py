"""The batch flow shows the samples that were really loaded, where they went and how gradients were averaged."""

import example_traces as examples
import numpy as np
import pytest

from labkit.trace import Meta, from_events
from labkit.view.batch import batch_figure
from labkit.view.batch_flow import MAX_SAMPLES, batch_flow

IMAGES = np.arange(64 * 4).reshape(64, 2, 2)


def test_every_microbatch_has_the_samples_of_its_load():
    scene = batch_flow(examples.one_f_one_b(), IMAGES)
    assert [piece["samples"] for piece in scene.pieces] == [list(range(m * 8, m * 8 + 8)) for m in range(8)]
    assert scene.replicas == [{"replica": 0, "ranks": [0, 1, 2, 3]}]


def test_each_image_goes_over_once():
    scene = batch_flow(examples.one_f_one_b(), IMAGES)
    assert np.frombuffer(scene.columns["samples"], "<i4").tolist() == list(range(64))
    pixels = np.frombuffer(scene.columns["images"], "u1").reshape(64, 2, 2)
    assert pixels.min() == 0 and pixels.max() == 255 and (np.diff(pixels.ravel().astype(int)) >= 0).all()


def test_samples_without_an_image_are_kept_but_not_drawn():
    scene = batch_flow(examples.one_f_one_b(), IMAGES[:10])
    assert len(np.frombuffer(scene.columns["samples"], "<i4")) == 10
    assert sum(len(piece["samples"]) for piece in scene.pieces) == 64


def test_work_is_that_of_the_stages():
    scene = batch_flow(examples.one_f_one_b(), IMAGES)
    assert len(scene.work) == 4 * 8 * 2
    assert scene.average == {}


def test_averaging_is_counted_for_one_rank():
    scene = batch_flow(examples.data_parallel(num_steps=1), IMAGES)
    assert (scene.average["num"], scene.average["size_bytes"]) == (3, 3 * 4_200_000)
    assert scene.average["ops"] == ["all_reduce"]


def with_gradients(after: float):
    rows = [
        dict(rank=rank, kind="load", step=0, microbatch=0, start_ns=0, end_ns=1, samples=[rank]) for rank in range(2)
    ]
    group = dict(step=0, kind="sync", op="all_reduce", axis="dp", group=[0, 1], size_bytes=16, start_ns=4, end_ns=5)
    kept = dict(step=0, kind="value", layer="fc.weight", dtype="float64", shape=[2], size_bytes=16)
    for rank, local in enumerate((1.0, 3.0)):
        rows.append(group | dict(rank=rank))
        for op, value, t in (("grad_local", local, 3), ("grad", after, 6)):
            data = np.array([0.0, value]).tobytes()
            rows.append(kept | dict(rank=rank, op=op, start_ns=t, end_ns=t, data=data))
    return from_events(rows, Meta("measured", plan={"task": "digits", "dp": 2}, num_ranks=2))


def test_a_gradients_numbers_are_shown_only_where_the_mean_is_what_was_captured():
    numbers = batch_flow(with_gradients(2.0), IMAGES).average["numbers"]
    assert numbers == {"name": "fc.weight", "local": [1.0, 3.0], "after": 2.0}
    assert batch_flow(with_gradients(2.5), IMAGES).average["numbers"] is None


def test_a_huge_batch_shows_the_first_of_each_microbatch():
    load = dict(rank=0, kind="load", step=0, start_ns=0, end_ns=1)
    rows = [load | dict(microbatch=m, samples=list(range(m * 2000, m * 2000 + 2000))) for m in range(2)]
    scene = batch_flow(from_events(rows, Meta("measured")), IMAGES)
    assert [len(piece["samples"]) for piece in scene.pieces] == [MAX_SAMPLES // 2] * 2
    assert [piece["num_samples"] for piece in scene.pieces] == [2000, 2000]


@pytest.mark.parametrize("make", [examples.empty, examples.single, examples.mixed])
def test_without_samples_it_says_what_to_set(make):
    assert "names its samples" in batch_flow(make(), IMAGES).missing


def test_a_step_that_loads_nothing_is_refused():
    with pytest.raises(ValueError, match=r"steps that do are \[0, 1\]"):
        batch_flow(examples.data_parallel(), IMAGES, step=9)


def test_samples_of_another_task_are_never_shown_as_digits():
    trace = examples.data_parallel()
    chars = trace.with_meta(plan=trace.meta.plan | {"task": "chars"})
    scene = batch_flow(chars)
    assert scene.columns["images"] == b"" and len(scene.pieces) == 4
    assert "no pictures" in batch_figure(chars).layout.annotations[0].text
