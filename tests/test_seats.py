"""Runs in line for the seats of a shared machine: nobody overtakes, nobody waits for the dead."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from labkit.rules import PlanError
from labkit.seats import Limits, Place, limits, seated


def go_on(_: Place) -> bool:
    return True


def test_without_a_limit_nothing_waits_and_nothing_is_written(tmp_path):
    with seated(100, None, go_on, tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_run_that_could_never_be_seated_is_refused_at_once(tmp_path):
    with pytest.raises(PlanError, match=r"needs 9 ranks.*at most 8"), seated(9, 8, go_on, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


class Visitor:
    """A run in a thread: waits, sits until it is told to leave."""

    def __init__(self, ranks: int, folder, limit: int = 8):
        self.places, self.is_seated, self.leave = [], threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._visit, args=(ranks, folder, limit), daemon=True)
        self.thread.start()

    def _visit(self, ranks, folder, limit):
        with seated(ranks, limit, self._wait, folder):
            self.is_seated.set()
            self.leave.wait(20)

    def _wait(self, place):
        self.places.append(place.number)
        return True

    def go(self):
        self.leave.set()
        self.thread.join(20)

    def waits(self) -> bool:
        """It has asked for its place at least once, and is not seated."""
        deadline = time.monotonic() + 10
        while not self.places and not self.is_seated.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        return bool(self.places) and not self.is_seated.is_set()


def test_first_come_first_served_even_if_a_later_one_would_fit(tmp_path):
    first = Visitor(6, tmp_path)
    assert first.is_seated.wait(10)
    large = Visitor(4, tmp_path)
    assert large.waits() and large.places[-1] == 1
    small = Visitor(2, tmp_path)  # fits beside the first, but the large one came before
    assert small.waits() and small.places[-1] == 2
    first.go()
    assert large.is_seated.wait(10) and small.is_seated.wait(10)  # 4 + 2 fit
    large.go()
    small.go()
    assert list(tmp_path.glob("*.ticket")) == []


def test_giving_up_frees_the_place(tmp_path):
    first = Visitor(8, tmp_path)
    assert first.is_seated.wait(10)
    with pytest.raises(InterruptedError), seated(1, 8, lambda place: False, tmp_path):
        pass
    last = Visitor(1, tmp_path)
    assert last.waits() and last.places[-1] == 1
    first.go()
    assert last.is_seated.wait(10)
    last.go()


def _sit(folder, is_seated):
    with seated(8, 8, go_on, folder):
        is_seated.set()
        time.sleep(60)


def test_a_killed_process_leaves_its_seats(tmp_path):
    context = multiprocessing.get_context("spawn")
    is_seated = context.Event()
    process = context.Process(target=_sit, args=(tmp_path, is_seated))
    process.start()
    assert is_seated.wait(30)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with seated(8, 8, lambda place: pytest.fail("waits for a dead process"), tmp_path):
        assert len(list(tmp_path.glob("*.ticket"))) == 1


def test_the_wait_is_guessed_from_the_last_runs(tmp_path):
    heard = []
    with seated(1, 1, go_on, tmp_path):
        time.sleep(0.2)
    with seated(1, 1, go_on, tmp_path), pytest.raises(InterruptedError):
        with seated(1, 1, lambda place: heard.append(place), tmp_path):
            pass
    assert heard[0].number == 1 and 0.15 < heard[0].wait_s < 5


def test_limits_travel_by_the_environment():
    given = Limits(seats=8, run_s=60.5, memory_bytes=2**30)
    assert limits(given.environment()) == given and limits({}) == Limits()


@pytest.mark.parametrize("text", ["many", "0", "-3", "nan"])
def test_a_limit_that_is_none(text):
    with pytest.raises(ValueError, match=f"LABKIT_SEATS='{text}'|above 0"):
        limits({"LABKIT_SEATS": text})
