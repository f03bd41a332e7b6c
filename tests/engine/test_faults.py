"""When something goes wrong by itself: one readable error, nothing left running, and the next run works."""

import itertools
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import labkit
from labkit.engine.own import own_task
from labkit.lab import run
from labkit.launch import POOL
from labkit.plan import Plan, PlanError
from labkit.watch import RunCancelled, RunError


class Fault(nn.Module):
    """Passes its input on, until the microbatch in which `action` happens on one rank."""

    def __init__(self, action: str, *, rank: int = 1, after: int = 3) -> None:
        super().__init__()
        self.action, self.rank, self.left = action, rank, after

    def forward(self, x):
        self.left -= 1
        if self.left == 0 and torch.distributed.get_rank() == self.rank:
            print("about to fail:", self.action, flush=True)
            if self.action == "raise":
                raise ArithmeticError("a wrong number")
            time.sleep(1000)
        return x


def task(action: str, **where):
    layers = {"in": nn.Linear(4, 8), "fault": Fault(action, **where), "out": nn.Linear(8, 2)}

    def batch(indices: np.ndarray):
        x = torch.from_numpy(indices)[:, None] * torch.ones(4)
        return x.float() / 10, torch.from_numpy(indices) % 2

    return own_task(layers, batch, num_samples=32)


PLAN = Plan(task="own", dp=4, layers=3, steps=5, global_batch=8)


def rank_processes() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def assert_next_run_works() -> None:
    assert len(run(Plan(dp=4, steps=2)).meta.losses) == 2


def test_a_rank_that_fails_is_named_with_its_last_event_and_output():
    start = time.monotonic()
    with pytest.raises(RunError) as caught:
        run(PLAN, task=task("raise"))
    assert time.monotonic() - start < 60  # not by a time limit of torch or of the test; seconds are in RELIABILITY.md
    words = ["rank 1 raised", "ArithmeticError: a wrong number", "layer fault", "step 2", "about to fail"]
    for word in words:
        assert word in str(caught.value)
    assert caught.value.rank == 1
    assert "about to fail" in caught.value.log
    assert_next_run_works()


def test_a_rank_that_hangs_is_named_with_its_line():
    start = time.monotonic()
    with pytest.raises(RunError, match="rank 1 hangs") as caught:
        run(PLAN, task=task("hang"))
    assert time.monotonic() - start < 60  # not by a time limit of torch or of the test; seconds are in RELIABILITY.md
    assert "layer fault" in str(caught.value)
    assert "test_faults.py" in str(caught.value)  # the Python line, from the rank itself
    assert_next_run_works()


def test_an_error_in_set_up_does_not_show_an_earlier_runs_event():
    run(Plan(dp=2, steps=3))
    broken = own_task({"a": nn.Linear(4, 2)}, lambda indices: 1 / 0, num_samples=8)
    with pytest.raises(RunError, match=r"Its last event: (none yet|.*set-up|load.*|zero_grad.*)"):
        run(Plan(task="own", pp=1, dp=2, layers=1, global_batch=4), task=broken)


def test_a_long_set_duration_is_no_hang():
    trace = run(Plan(dp=2, steps=1, link="latency=3s,bandwidth=1GB/s"), hang_after_s=2)
    assert trace.of("sync")["end_ns"].max() > 3_000_000_000


def test_cancelling_a_run_that_waits_for_another():
    cancelled, first_cancelled = threading.Event(), threading.Event()
    plan = Plan(dp=2, steps=10_000, pace="forward=20ms,backward=20ms")

    def first() -> None:
        with pytest.raises(RunCancelled):
            run(plan, cancelled=first_cancelled)

    thread = threading.Thread(target=first)
    thread.start()
    time.sleep(1)
    cancelled.set()
    start = time.monotonic()
    with pytest.raises(RunCancelled, match="before it began"):
        run(Plan(dp=2), cancelled=cancelled)
    assert time.monotonic() - start < 1
    first_cancelled.set()
    thread.join(10)
    assert_next_run_works()


def test_what_was_recorded_before_a_fault_is_kept():
    slow = {"pace": "forward=60ms,backward=60ms"}
    plan = Plan(task="own", dp=4, layers=3, steps=5, global_batch=8, **slow)
    with pytest.raises(RunError) as caught:
        run(plan, task=task("raise", after=5))
    trace = caught.value.trace
    assert set(trace.of("step")["step"]) >= {0, 1, 2}
    assert any("did not finish" in note for note in trace.meta.notes)


def test_a_fault_in_a_pipeline_names_the_stage_that_failed():
    with pytest.raises(RunError, match=r"rank 1 raised (ArithmeticError|RuntimeError)") as caught:
        run(Plan(task="own", pp=3, layers=3, microbatches=3, steps=5, global_batch=6), task=task("raise"))
    assert "a wrong number" in str(caught.value)
    assert_next_run_works()


def test_cancel_stops_a_run_at_once():
    cancelled = threading.Event()
    threading.Timer(0.5, cancelled.set).start()
    start = time.monotonic()
    with pytest.raises(RunCancelled) as caught:
        run(Plan(dp=2, steps=10_000, pace="forward=20ms,backward=20ms"), cancelled=cancelled)
    assert time.monotonic() - start < 60  # not by a time limit of torch or of the test; seconds are in RELIABILITY.md
    assert caught.value.trace.events.height > 0
    assert_next_run_works()


def test_progress_counts_steps_and_guesses_the_rest():
    seen = []
    run(Plan(dp=2, steps=8, pace="forward=20ms,backward=20ms"), on_progress=seen.append)
    assert seen[-1].steps_done == (8, 8)
    assert seen[-1].seconds_left == 0
    assert any(p.seconds_left and p.seconds_left > 0 for p in seen)
    assert all(a.steps_done <= b.steps_done for a, b in itertools.pairwise(seen))


def test_closing_leaves_no_rank():
    run(Plan(dp=2))
    assert rank_processes()
    labkit.close()
    assert not [p for p in rank_processes() if "rank" in " ".join(p.cmdline())]
    assert POOL._ranks == []
    assert_next_run_works()


def script(text: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], stdout=subprocess.PIPE, text=True)


LONG_RUN = """
    import psutil, threading, labkit
    def tell(progress):
        print(*[p.pid for p in psutil.Process().children(recursive=True)], flush=True)
    labkit.run(labkit.Plan(dp=3, global_batch=9, steps=10_000, pace="forward=10ms,backward=10ms"), on_progress=tell)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_rank_outlives_the_process_that_started_it(end):
    parent = script(LONG_RUN)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) >= 4  # three ranks and the server they were forked from
    parent.send_signal(end)
    deadline = time.monotonic() + 2
    alive = pids
    while alive and time.monotonic() < deadline:
        alive = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
        time.sleep(0.05)
    parent.wait(5)
    assert not alive


def test_ranks_do_not_run_the_users_script_again(tmp_path):
    """Unlike plain multiprocessing: no `if __name__ == "__main__"` is needed."""
    path = tmp_path / "script.py"
    path.write_text('import labkit\nprint("hello")\nprint(len(labkit.run(labkit.Plan(dp=2)).meta.losses))\n')
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["hello", "3"]


def test_a_plan_is_refused_before_a_process_starts():
    with pytest.raises(PlanError, match="GPU per rank"):
        run(Plan(dp=2, backend="nccl", max_ranks=512) if not torch.cuda.is_available() else Plan(dp=64, backend="nccl"))
    with pytest.raises(PlanError, match="layers=3"):
        run(Plan(task="own", layers=4), task=task("raise"))
    with pytest.raises(PlanError, match="task='own'"):
        run(Plan(dp=2), task=task("raise"))


def test_private_memory_of_a_rank_is_small():
    run(Plan(dp=4))
    uss = [rank.process.pid for rank in POOL._ranks]
    assert max(psutil.Process(pid).memory_full_info().uss for pid in uss) < 40 * 2**20


def test_many_runs_leak_nothing():
    run(Plan(dp=2))
    before = psutil.Process().num_fds(), psutil.Process().num_threads()
    for _ in range(20):
        run(Plan(dp=2, steps=1))
    assert (psutil.Process().num_fds(), psutil.Process().num_threads()) == before
