"""Which rank the others wait for, told from what each last began; and how that is said."""

import tempfile
from types import SimpleNamespace

import pytest

from labkit.blame import End, Results, Seen, failed, hung
from labkit.board import Board
from labkit.event import KINDS
from labkit.part import Names, Part

ACTIVITY_NS = 5


class Silent:
    """A rank's process with nothing to say."""

    def __init__(self, state: str = "sleeping") -> None:
        self._state = state

    is_stopped = property(lambda self: self._state == "stopped")

    def state(self) -> str:
        return self._state

    def read_log(self) -> str:
        return ""

    where = log_tail = read_log

    def ask_where(self) -> None: ...


def seen(*at: str) -> Seen:
    """Ranks that last began these kinds: "done" has delivered, "stopped forward" is stopped, "" began nothing."""
    with tempfile.TemporaryFile() as file:
        boards = [Board(file.fileno(), len(at), rank=rank) for rank in range(len(at))]
    outcomes = [SimpleNamespace() if one == "done" else None for one in at]
    for board, one in zip(boards, at, strict=True):
        if one and one != "done":
            board.doing(KINDS.index(one.split()[-1]), 3, 1, 0, 0, ACTIVITY_NS)
    ranks = [Silent("stopped" if one.startswith("stopped") else "sleeping") for one in at]
    return Seen(ranks, boards[0], Results(outcomes), ("fc0",))


@pytest.mark.parametrize(
    ("at", "rank"),
    [
        (("sync", "forward", "sync"), 1),  # who did not come to the sync
        (("wait", "wait", "backward"), 2),
        (("wait", "sync", "wait"), 1),  # who is in it and does not wait for it yet
        (("sync", "sync", "wait"), None),
        (("wait", "wait"), None),
        (("sync", "sync"), None),
        (("forward", "stopped sync"), 1),  # a stopped process needs no other sign
        (("done", "sync", "wait"), 1),
        (("done", "wait", "done"), 1),  # the only one left
        (("wait", "stopped wait", "sync"), 1),
        (("done", "sync", "sync"), None),
    ],
)
def test_who_hangs(at, rank):
    assert seen(*at).stuck() == rank
    error = hung(seen(*at), 2.0)
    assert error.rank == rank
    assert (f"rank {rank} hangs" if rank is not None else "a rank hangs, in a sync as all others are") in str(error)
    assert ("the others wait for it" in str(error)) == (rank is not None and at.count("done") < len(at) - 1)


def test_the_last_event_in_words():
    names = Names(["fc0"], ["all_reduce"], [], [])
    view = seen("wait", "sync", "forward")
    assert (
        view.activity(0) == "sync, waiting, of layer fc0, microbatch 1, in step 3"
    )  # the rank has not told its names yet
    view.results.parts += [Part(rank, names, b"") for rank in (0, 1)]
    assert view.activity(0) == "sync all_reduce, waiting, of layer fc0, microbatch 1, in step 3"
    assert view.activity(1) == "sync all_reduce, of layer fc0, microbatch 1, in step 3"
    assert seen("forward", "").activity(1) == "none yet"


@pytest.mark.parametrize(
    ("ends", "rank"),
    [
        ({0: End("raised RuntimeError: Connection closed by peer", "..."), 1: End("raised ValueError: x", "...")}, 1),
        ({0: End("raised ValueError: x", "..."), 1: End("died: killed by SIGKILL")}, 1),
        ({0: End("raised RuntimeError: Broken pipe", "..."), 2: End("raised OSError: Connection reset", "...")}, None),
    ],
)
def test_who_failed(ends, rank):
    view = seen("sync", "forward", "wait")
    view.ends.update(ends)
    assert failed(view).rank == rank


def test_a_connection_that_fails_between_ranks_that_live_on():
    view = seen("wait", "forward", "sync")
    view.ends[0] = End("raised RuntimeError: Connection closed by peer", "...")
    said = str(failed(view)).splitlines()
    assert said[0] == (
        "a connection between ranks was lost, though no rank ended: it broke in ranks 0; all were stopped"
    )
    assert said[1].startswith("  rank 0: sync, waiting") and said[1].endswith("Connection closed by peer")
    assert said[2] == "  rank 1: forward, of layer fc0, microbatch 1, in step 3"
