"""The mesh scene gets the timeline's columns, the ranks' places and the degrees of the axes."""

import example_traces as examples
import pytest

from labkit.mesh import Mesh
from labkit.view.mesh_grid import mesh_grid
from labkit.view.timeline import timeline


def test_it_draws_from_the_same_columns_as_the_timeline():
    trace = examples.mixed()
    scene = mesh_grid(trace)
    assert scene.columns == timeline(trace).columns
    assert scene.degrees == {"pp": 2, "dp": 2, "tp": 2}
    assert scene.ranks[5]["place"] == "stage 1 · dp 0 · tp 1"


def test_a_trace_without_a_fitting_plan_is_one_axis():
    trace = examples.dense(800)  # no plan, 8 ranks
    assert mesh_grid(trace).degrees == {"pp": 1, "dp": 8, "tp": 1}


@pytest.mark.parametrize("trace", [examples.single(), examples.mixed(Mesh(pp=4, dp=4, tp=4))])
def test_any_number_of_ranks(trace):
    assert len(mesh_grid(trace).ranks) == trace.meta.num_ranks


def test_an_empty_trace_says_so():
    assert "no events" in mesh_grid(examples.empty()).missing


def test_a_step_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="steps 0 to 0"):
        mesh_grid(examples.mixed(), step=3)
