"""Cut weights are shown with their true numbers, and compared with the whole product."""

import example_traces as examples
import numpy as np
import pytest
import value_traces as values

from labkit.view.matrix_shard import MAX_ACROSS, MAX_SAMPLES, matrix_shard
from labkit.view.shards import shards_of


@pytest.mark.parametrize("cut", ["rows", "columns"])
@pytest.mark.parametrize("n", [2, 3])
def test_the_values_tell_how_the_weight_is_cut(cut, n):
    (shard,) = shards_of(values.cut_layer(cut, n))
    assert (shard.name, shard.cut, shard.ranks, shard.has_relu) == ("fc0.linear.weight", cut, tuple(range(n)), True)
    assert shard.partials_from == "captured" and shard.max_difference < 1e-12
    joined = np.concatenate(shard.weights, axis=0 if cut == "rows" else 1)
    assert joined.shape == (4, 6)


def test_by_rows_results_lie_side_by_side_by_columns_they_are_added():
    (by_rows,) = shards_of(values.cut_layer("rows"))
    np.testing.assert_array_equal(np.concatenate(by_rows.partials, axis=1), by_rows.combined)
    (by_columns,) = shards_of(values.cut_layer("columns"))
    bias = np.frombuffer(values.cut_layer("columns").events.filter(layer="fc0.linear.bias")["data"][0])
    np.testing.assert_allclose(np.maximum(sum(by_columns.partials) + bias, 0), by_columns.combined, atol=1e-12)


def test_a_pair_inside_a_block_passes_parts_on_and_adds_up_once():
    up, down = shards_of(values.pair())
    assert (up.name, up.cut, up.feeds) == ("block0.up.weight", "rows", "block0.down.weight")
    assert (down.name, down.cut, down.feeds) == ("block0.down.weight", "columns", "")
    for part, taken in zip(up.partials, down.inputs):
        np.testing.assert_allclose(np.tanh(part), taken)
    assert down.partials_from == "captured"  # the second of the block's two syncs
    bias = np.frombuffer(values.pair().events.filter(layer="block0.down.bias")["data"][0])
    np.testing.assert_allclose(sum(down.partials) + bias, down.combined)
    assert [shard["feeds"] for shard in matrix_shard(values.pair()).shards] == ["block0.down.weight", ""]


def test_numbers_that_do_not_fit_together_are_left_out_and_said():
    trace = values.cut_layer("rows", spoil=0.1)
    assert shards_of(trace) == []
    assert "fit together" in matrix_shard(trace).missing


def test_a_serial_run_is_the_whole_where_there_is_one():
    (shard,) = shards_of(values.cut_layer("rows"), serial=values.serial())
    assert shard.whole_from == "captured"
    assert shard.max_difference == pytest.approx(2.0**-20)
    (other,) = shards_of(values.cut_layer("rows"), serial=values.serial(num_in=4))
    assert other.whole_from == "computed"


def test_what_goes_over_is_what_was_captured():
    scene = matrix_shard(values.cut_layer("rows"))
    (shard,) = scene.shards
    key, num_rows, num_columns = shard["matrices"]["weight1"]
    sent = np.frombuffer(scene.columns[key], "<f4").reshape(num_rows, num_columns)
    np.testing.assert_allclose(sent, shards_of(values.cut_layer("rows"))[0].weights[1], rtol=1e-6)
    assert shard["weight_shape"] == [4, 6] and not shard["is_cropped"]


@pytest.mark.parametrize("cut", ["rows", "columns"])
def test_a_big_weight_shows_the_beginnings_of_its_parts(cut):
    scene = matrix_shard(values.cut_layer(cut, 2, num_in=300, num_out=200))
    (shard,) = scene.shards
    shapes = {name: (num_rows, num_columns) for name, (_, num_rows, num_columns) in shard["matrices"].items()}
    each = MAX_ACROSS // 2
    assert shapes["weight0"] == ((each, MAX_ACROSS) if cut == "rows" else (MAX_ACROSS, each))
    assert shapes["whole"] == shapes["combined"] == shapes["difference"] == (min(3, MAX_SAMPLES), MAX_ACROSS)
    assert shard["is_cropped"] and shard["weight_shape"] == [200, 300]


@pytest.mark.parametrize(
    ("trace", "note"),
    [
        (examples.empty(), "no events"),
        (examples.one_f_one_b(), "no tensor parallel ranks"),
        (examples.mixed(), "holds no values"),
    ],
)
def test_without_values_a_note_says_what_to_set(trace, note):
    missing = matrix_shard(trace).missing
    assert note in missing and ("value_limit_bytes" in missing or note == "no events")
