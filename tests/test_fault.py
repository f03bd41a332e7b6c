"""A fault that could never happen is refused, with the way out."""

import pytest

from labkit.faults import Fault, LastSeen
from labkit.plan import Plan, PlanError


@pytest.mark.parametrize(
    ("plan", "fault", "words"),
    [
        ({"dp": 2}, {"rank": 2}, "rank 2: the plan's ranks are 0 to 1"),
        ({"dp": 2}, {"rank": -1}, "rank -1"),
        ({"dp": 2, "steps": 3}, {"step": 3}, "step 3: the plan's steps are 0 to 2"),
        ({"dp": 2, "record": ()}, {}, 'must record something, such as "compute"'),
        ({"dp": 2, "record": ("compute",)}, {"where": "sync"}, 'must record "sync"'),
        ({}, {"where": "sync"}, "where='forward'"),
        ({"dp": 2, "grad_sync": "off"}, {"where": "sync"}, "this plan has none"),
        ({"dp": 2, "pace": "forward=1ms"}, {"what": "slow"}, "Plan.slow"),
    ],
)
def test_a_fault_must_be_possible_in_the_plan(plan, fault, words):
    with pytest.raises(PlanError, match=words):
        Fault(**{"rank": 0, "step": 0, "what": "kill"} | fault).check(Plan(**plan))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"what": "explode"}, "what='explode': choose one of raise, exit, kill, stop, hang, memory, cut, slow"),
        ({"where": "lunch"}, "where='lunch': choose one of forward, backward, sync"),
        ({"seconds": 0}, "more than 0 and at most 60"),
        ({"seconds": float("nan")}, "more than 0"),
    ],
)
def test_a_fault_must_be_known(fault, words):
    with pytest.raises(PlanError, match=words):
        Fault(**{"rank": 0, "step": 0, "what": "slow"} | fault)


def test_a_fault_says_what_and_when():
    assert f"{Fault(2, 1, 'kill')}" == "on purpose, at the first forward of step 1, rank 2 is killed (SIGKILL)"


def test_to_notice_is_to_lose_a_connection():
    ends = {"raised RuntimeError: Connection closed by peer": True, "died: killed by SIGKILL": False, "": False}
    assert {end: LastSeen(0, "", 0.0, end, None).noticed for end in ends} == ends
