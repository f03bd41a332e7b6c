"""Faults on purpose, in every place: the rank and its event are named, nothing is left, and the next run works."""

import os
import re
import signal
import threading

import psutil
import pytest

import labkit
from labkit.faults import WHAT, WHERE, Fault
from labkit.launch import POOL
from labkit.plan import Plan, PlanError
from labkit.watch import RunError

PLAN = Plan(dp=3, steps=4, global_batch=6, pace="forward=40ms,backward=80ms")
ENDS = {
    "raise": "rank 2 raised RuntimeError: on purpose, at the first forward of step 2",
    "exit": "rank 2 died: exit code 7",
    "kill": "rank 2 died: killed by SIGKILL",
    "stop": "rank 2 hangs",
    "hang": "rank 2 hangs",
    "memory": "rank 2 raised RuntimeError: .*allocate memory",
}


def faulted(plan: Plan, fault: Fault) -> RunError:
    """The error of a run with this fault, after which its ranks must be gone and the next run must work."""
    POOL.warm_up(plan.num_ranks)
    pids = [rank.process.pid for rank in POOL._ranks]
    with pytest.raises(RunError) as caught:
        labkit.run(plan, fault=fault, hang_after_s=2)
    assert len(pids) >= plan.num_ranks and not any(map(psutil.pid_exists, pids))
    assert len(labkit.run(Plan(dp=2, steps=2)).meta.losses) == 2
    return caught.value


@pytest.mark.parametrize("what", ENDS)
def test_a_fault_is_told_and_what_went_before_is_kept(what):
    error = faulted(PLAN, Fault(2, 2, what))
    assert error.rank == 2
    assert re.search(ENDS[what], str(error))
    assert error.ranks[2].doing == "stage_forward, microbatch 0, in step 2"
    assert f"on purpose, at the first forward of step 2, rank 2 {WHAT[what]}" in error.trace.meta.notes
    assert dict(error.trace.of("step").group_by("step").len().rows())[0] == 3  # the step before is whole
    assert labkit.timeline(error.trace) is not None


@pytest.mark.parametrize("where", WHERE)
def test_a_fault_strikes_where_it_is_told_to(where):
    error = faulted(Plan(pp=3, layers=3, microbatches=3, global_batch=6, steps=3), Fault(1, 1, "kill", where))
    kind = {"forward": "stage_forward", "backward": "stage_backward", "sync": "sync"}[where]
    assert error.ranks[1].doing.startswith(kind) and error.ranks[1].doing.endswith("in step 1")


def test_the_store_dies_with_rank_0():
    assert "rank 0 died: killed by SIGKILL" in str(faulted(PLAN, Fault(0, 1, "kill")))


@pytest.mark.parametrize(
    ("plan", "where"), [(PLAN, "forward"), (Plan(pp=2, dp=2, steps=3), "backward"), (Plan(tp=2, steps=3), "sync")]
)
def test_a_link_that_drops_blames_no_rank(plan, where):
    error = faulted(plan, Fault(1, 1, "cut", where))
    assert error.rank is None and "a connection between ranks was lost, though no rank ended" in str(error)
    assert any(one.noticed for one in error.ranks) and not any("died" in one.end for one in error.ranks)
    assert error.trace.of("step").height >= plan.num_ranks  # step 0 is whole


@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.01, 0.03, 0.1])
def test_the_store_dies_at_any_moment(delay_s):
    """From outside: also while the other ranks still join."""
    POOL.warm_up(3)
    pids = [rank.process.pid for rank in POOL._ranks]
    timer = threading.Timer(delay_s, os.kill, (pids[0], signal.SIGKILL))
    timer.start()
    with pytest.raises(RunError, match="rank 0 died: killed by SIGKILL") as caught:
        labkit.run(PLAN, hang_after_s=2)
    timer.join()
    assert caught.value.rank == 0 and not any(map(psutil.pid_exists, pids))
    assert len(labkit.run(Plan(dp=2, steps=2)).meta.losses) == 2


def test_survivors_of_a_death_notice_and_survivors_of_a_hang_do_not():
    killed, stopped = faulted(PLAN, Fault(2, 1, "kill")), faulted(PLAN, Fault(2, 1, "stop"))
    assert any(one.noticed for one in killed.ranks if one.rank != 2)
    assert [one.noticed for one in stopped.ranks] == [False] * 3
    assert all(one.for_s >= 2 for one in stopped.ranks if one.rank != 2)


def test_a_rank_that_hangs_in_a_sync_is_told_from_those_that_wait_in_it():
    error = faulted(PLAN, Fault(1, 1, "hang", "sync"))
    assert error.rank == 1 and "rank 1 hangs" in str(error)
    assert [line for line in str(error).splitlines() if "in strike" in line and line.startswith("  rank 1 (")]


@pytest.mark.parametrize("seed", [19, 38])
def test_a_pipelines_rank_that_does_not_come_to_its_message_is_named(seed):
    """Rank 0 waits for it after a forward, ranks 1 and 3 in their gradients' sync."""
    plan = Plan(dp=2, pp=2, microbatches=4, global_batch=16, width=32, layers=4, seed=seed)
    error = faulted(plan, Fault(2, 0, "hang", "sync"))
    assert error.rank == 2 and "rank 2 hangs" in str(error)
    assert [one.doing.startswith("sync, waiting") for one in error.ranks] == [True, True, False, True]


def test_a_slow_rank_is_slow_and_the_others_wait():
    trace = labkit.run(Plan(dp=2, steps=4), fault=Fault(1, 2, "slow", seconds=0.25))
    forward = trace.of("stage_forward").sort("step")
    lasted = {(rank, step): end - start for rank, step, start, end in
              forward.select("rank", "step", "start_ns", "end_ns").rows()}  # fmt: skip
    assert min(lasted[1, 2], lasted[1, 3]) >= 250_000_000 > max(lasted[1, 1], lasted[0, 2], lasted[0, 3])
    assert any("rank 1 is slow" in note for note in trace.meta.notes)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(3, 1, "kill"), "rank 3: the plan's ranks are 0 to 2"),
        (Fault(0, 4, "kill"), "step 4: the plan's steps are 0 to 3"),
        (Fault(0, 1, "slow"), "Plan.slow"),
    ],
)
def test_a_fault_that_could_not_happen_is_refused(fault, words):
    with pytest.raises(PlanError, match=words):
        labkit.run(PLAN, fault=fault)
