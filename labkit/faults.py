"""A fault on purpose: what one rank does to itself, and when. And what every rank was at when a run was stopped.

In: rank, step, what. Out: a frozen `Fault`, which `labkit.run(plan, fault=...)` sends to that rank with its job; after
any fault, on purpose or not, `RunError.ranks` holds a `LastSeen` of every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.plan import Plan, PlanError

WHAT = {
    "raise": "raises an error",
    "exit": "leaves with exit code 7",
    "kill": "is killed (SIGKILL)",
    "stop": "is stopped (SIGSTOP)",
    "hang": "never comes back",
    "memory": "runs out of memory",
    "cut": "loses its connections to the others",
    "slow": "is slow from then on",
}
"""What a rank can do to itself, in words."""

WHERE = ("forward", "backward", "sync")


@dataclass(frozen=True)
class Fault:
    """As `rank` begins the first forward, backward or sync (`where`) of `step` (from 0), it does `what`."""

    rank: int
    step: int
    what: str
    where: str = "forward"
    seconds: float = 0.1
    """Of "slow" only: how much longer every forward, backward or sync takes from that step on."""

    def __post_init__(self) -> None:
        for name, value, known in (("what", self.what, tuple(WHAT)), ("where", self.where, WHERE)):
            if value not in known:
                raise PlanError(f"a fault with {name}={value!r}: choose one of {', '.join(known)}")
        if not 0 < self.seconds <= 60:
            raise PlanError(f"a fault of {self.seconds:g} seconds: give more than 0 and at most 60")

    def check(self, plan: Plan) -> None:
        """Refuse a fault that could never happen in this plan, with PlanError."""
        for name, value, end in (("rank", self.rank, plan.num_ranks), ("step", self.step, plan.steps)):
            if not 0 <= value < end:
                raise PlanError(f"a fault in {name} {value}: the plan's {name}s are 0 to {end - 1}, choose one of them")
        if not plan.record or (self.where == "sync" and "sync" not in plan.record):
            needed = '"sync"' if self.where == "sync" else 'something, such as "compute"'
            raise PlanError(f"a fault strikes as an event begins, so the plan must record {needed}: see Plan.record")
        if self.where == "sync" and (plan.num_ranks == 1 or plan.grad_sync == "off"):
            raise PlanError("a fault in a sync: this plan has none; choose where='forward' or 'backward'")
        if self.what == "slow" and plan.pace:
            raise PlanError("a paced plan sets how long work takes: make a rank slow by Plan.slow, e.g. slow={2: 1.5}")

    def __str__(self) -> str:
        return f"on purpose, at the first {self.where} of step {self.step}, rank {self.rank} {WHAT[self.what]}"


@dataclass(frozen=True)
class LastSeen:
    """What a rank was at when its run was stopped."""

    rank: int
    doing: str
    """The last event it began, in words."""
    for_s: float
    """How long ago that was."""
    end: str
    """How it ended by itself: "died: killed by SIGKILL", "raised ..."; empty: it was still there, and was stopped."""
    ended_s: float | None
    """How long before the stop the parent heard of that."""

    @property
    def noticed(self) -> bool:
        """Whether it raised an error because its connection to another rank was lost."""
        return any(words in self.end for words in LOST)


LOST = ("Connection closed", "Connection reset", "Broken pipe", "Connection refused", "Socket closed")
"""What a rank says when another one is gone: its error is a consequence."""
