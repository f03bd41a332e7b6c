"""Players are linked by a group's name."""

import example_traces as examples

from labkit.view.memory_lanes import memory_lanes
from labkit.view.mesh_grid import mesh_grid
from labkit.view.player import link_players
from labkit.view.timeline import timeline


def test_linked_players_share_a_group_and_others_do_not():
    trace = examples.one_f_one_b()
    one, two, other, alone = timeline(trace), mesh_grid(trace), memory_lanes(trace), timeline(trace)
    link_players(one, two)
    link_players(other)
    assert one.link_group == two.link_group != ""
    assert other.link_group not in ("", one.link_group)
    assert alone.link_group == ""
