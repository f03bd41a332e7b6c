"""The step time against the latency of a sync: syncs that follow one another each wait for it once."""

import pytest

from labkit.replay import Changes, ReplayError, replay, step_ns
from labkit.replay.latency import last_step_ns, steps_by_latency
from labkit.trace import Meta, from_events

MS = 1_000_000


def two_ranks(num_layers: int):
    """Each layer: 2 ms of work on both ranks, then an all_reduce that both are blocked in."""
    rows = []
    for rank in (0, 1):
        common = dict(rank=rank, step=0)
        for layer in range(num_layers):
            at = 3 * MS * layer
            rows.append(dict(kind="forward", layer=f"fc{layer}", start_ns=at, end_ns=at + 2 * MS, **common))
            whole = dict(start_ns=at + 2 * MS, end_ns=at + 3 * MS, op="all_reduce", axis="tp", group=[0, 1], seq=layer)
            rows += [dict(kind=kind, size_bytes=0, **whole, **common) for kind in ("sync", "wait")]
        rows.append(dict(kind="step", start_ns=0, end_ns=3 * MS * num_layers, **common))
    return from_events(rows, Meta("paced", plan={"tp": 2, "layers": num_layers}, num_ranks=2))


def test_a_step_grows_by_the_latency_of_every_sync_in_a_row():
    free, one, two = steps_by_latency(two_ranks(5), (0.0, 1e-3, 2e-3))
    assert free == pytest.approx(10 * MS)  # work only
    assert (one, two) == (pytest.approx(15 * MS), pytest.approx(20 * MS))


def test_it_is_what_a_replay_on_that_link_takes():
    trace = two_ranks(3)
    changes = Changes(link="latency=1ms,bandwidth=25GB/s")
    assert steps_by_latency(trace, (1e-3,)) == [step_ns(replay(trace, changes))]


def test_of_several_steps_the_last_one_counts():
    rows = [dict(kind="step", rank=0, step=step, start_ns=10 * step, end_ns=10 * step + 9 - step) for step in range(3)]
    rows.append(dict(kind="step", rank=1, step=2, start_ns=21, end_ns=24))
    assert last_step_ns(from_events(rows, Meta("measured", num_ranks=2))) == 7
    with pytest.raises(ReplayError, match="no step event"):
        last_step_ns(from_events([], Meta("measured")))
