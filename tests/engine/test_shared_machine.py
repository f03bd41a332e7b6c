"""Runs on a machine that is shared: they wait in line, and none takes more than its part."""

import threading
import time

import psutil
import pytest

from labkit import seats
from labkit.lab import run
from labkit.launch import POOL
from labkit.plan import Plan, PlanError
from labkit.watch import RunCancelled, RunError

SMALL = Plan(dp=2, steps=2, global_batch=4)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(seats, "_own_folder", lambda: tmp_path)
    return tmp_path


def test_a_run_waits_for_its_seats_and_tells_its_place(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_SEATS", "2")
    places, is_seated, may_leave = [], threading.Event(), threading.Event()

    def sit():
        with seats.seated(1, 2, lambda place: True, folder):
            is_seated.set()
            may_leave.wait(60)

    other = threading.Thread(target=sit)
    other.start()
    assert is_seated.wait(10)

    def on_progress(now):
        places.append(now.place)
        if len(places) == 3:
            may_leave.set()

    trace = run(SMALL, on_progress=on_progress)
    other.join()
    assert trace.meta.num_ranks == 2 and places[:3] == [1, 1, 1] and places[-1] == 0
    assert list(folder.glob("*.ticket")) == []


def test_cancel_while_waiting_frees_the_place(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_SEATS", "2")
    cancelled = threading.Event()
    with seats.seated(2, 2, lambda place: True, folder):
        with pytest.raises(RunCancelled, match="before it began"):
            run(SMALL, cancelled=cancelled, on_progress=lambda now: cancelled.set())
        assert len(list(folder.glob("*.ticket"))) == 1
    run(SMALL)


def test_more_ranks_than_seats_are_refused(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_SEATS", "2")
    with pytest.raises(PlanError, match=r"4 ranks.*at most 2 at once"):
        run(Plan(dp=4))


def test_a_run_that_takes_too_long_is_stopped(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_RUN_S", "1")
    started = time.monotonic()
    with pytest.raises(RunError, match="longer than the 1 s") as failed:
        run(Plan(dp=2, steps=100, pace="forward=100ms,backward=100ms"))
    assert time.monotonic() - started < 30 and failed.value.trace.events.height
    monkeypatch.delenv("LABKIT_RUN_S")
    run(SMALL)


def test_a_run_that_holds_too_much_is_stopped(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_MEMORY_BYTES", "1000000")
    with pytest.raises(RunError, match="more than the 1 MB that one run may hold"):
        run(Plan(dp=2, steps=100, pace="forward=50ms,backward=50ms"))


def test_idle_ranks_are_let_go(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_IDLE_S", "0.3")
    run(SMALL)
    pids = [rank.process.pid for rank in POOL._ranks]
    assert pids
    deadline = time.monotonic() + 10
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(psutil.pid_exists, pids))
    monkeypatch.delenv("LABKIT_IDLE_S")
    run(SMALL)
