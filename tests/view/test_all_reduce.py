"""All-reduces are read from the messages themselves: rounds, chunks, bytes and what was carried."""

import example_traces as examples
import message_traces as messages
import polars as pl
import pytest

from labkit.view.all_reduce import all_reduce
from labkit.view.sends import all_reduces


@pytest.mark.parametrize("tied", [False, True], ids=["one after another", "all in one moment"])
@pytest.mark.parametrize(
    ("make", "n", "rounds"),
    [
        (messages.ring, 2, 2),
        (messages.ring, 4, 6),
        (messages.ring, 5, 8),
        (messages.tree, 2, 2),
        (messages.tree, 4, 4),
        (messages.tree, 8, 6),
        (messages.gather, 4, 6),
    ],
)
def test_rounds_follow_from_the_order_of_the_sends(make, n, rounds, tied):
    (call,) = all_reduces(make(n, tied=tied))
    assert call.num_rounds == rounds
    sends = {"ring": 2 * n * (n - 1)}.get(make.__name__, 2 * (n - 1))
    assert len(call.sends) == sends
    for round_ in range(1, rounds + 1):  # one message out and one in at a time
        now = [send for send in call.sends if send.round == round_]
        assert now
        assert len({send.sender for send in now}) == len({send.receiver for send in now}) == len(now)


@pytest.mark.parametrize("make", [messages.ring, messages.tree, messages.gather])
def test_the_shape_is_told_by_the_links(make):
    assert all_reduces(make(4))[0].shape == make.__name__


def test_after_the_last_round_every_rank_holds_every_share_of_every_chunk():
    (call,) = all_reduces(messages.ring(5))
    holds = {(rank, chunk): {rank} for rank in range(5) for chunk in range(5)}
    for round_ in range(1, call.num_rounds + 1):
        sent = [(send, set(holds[send.sender, send.chunk])) for send in call.sends if send.round == round_]
        for send, carried in sent:
            holds[send.receiver, send.chunk] |= carried
    assert all(held == set(range(5)) for held in holds.values())


def test_bytes_are_those_of_the_messages():
    trace = messages.ring(4, size=8)
    (call,) = all_reduces(trace)
    assert call.size_bytes == 8 * 8
    assert (
        sum(send.size_bytes for send in call.sends) == trace.events.filter(pl.col("op") == "send")["size_bytes"].sum()
    )
    rows = trace.events[[send.row for send in call.sends]]
    assert (rows["op"] == "send").all() and rows["rank"].to_list() == [send.sender for send in call.sends]


def test_numbers_are_those_that_flew():
    (call,) = all_reduces(messages.ring(2, size=4))
    assert [send.number for send in call.sends] == [2.0, 40.0, 44.0, 22.0]  # chunk 0 is [1, 2], chunk 1 is [3, 4]


def test_numbers_that_cannot_be_told_apart_are_not_claimed():
    assert all(send.number is None for send in all_reduces(messages.ring(4, values=False))[0].sends)
    scrambled = messages.ring(4, tied=True)
    mixed = scrambled.events.sample(fraction=1, shuffle=True, seed=3).sort("start_ns", maintain_order=True)
    (call,) = all_reduces(type(scrambled)(mixed, scrambled.meta))
    assert call.num_rounds == 6 and any(send.number is None for send in call.sends)


def test_several_all_reduces_of_one_step_are_told_apart():
    one = messages.tree(4).events
    later = one.with_columns(pl.col("start_ns") + 10**9, pl.col("end_ns") + 10**9, pl.col("seq") + 1)
    trace = messages.tree(4)
    calls = all_reduces(type(trace)(pl.concat([one, later]), trace.meta))
    assert [call.num_rounds for call in calls] == [4, 4]


def test_what_is_left_out_is_said(monkeypatch):
    trace = messages.ring(4)
    later = trace.events.with_columns(pl.col("step") + 1, pl.col("seq") + 6)
    twice = type(trace)(pl.concat([trace.events, later]), trace.meta)
    assert len(all_reduce(twice).calls) == 2
    monkeypatch.setattr("labkit.view.sends.MAX_SENDS", 30)
    scene = all_reduce(twice)
    assert len(scene.calls) == 1 and "24 of 48 messages" in scene.notes[-1]


def test_the_widget_opens_on_a_step_and_refuses_one_that_is_not_there():
    assert all_reduce(messages.ring(), step=0).missing == ""
    with pytest.raises(ValueError, match="steps that do are 0"):
        all_reduce(messages.ring(), step=7)


@pytest.mark.parametrize(
    ("trace", "note"),
    [
        (examples.empty(), "no events"),
        (examples.single(), "grad_sync='ring'"),
        (examples.data_parallel(), "inside the communication library"),
        (examples.one_f_one_b(), "one replica"),
    ],
)
def test_without_messages_a_note_says_what_to_set(trace, note):
    assert note in all_reduce(trace).missing
