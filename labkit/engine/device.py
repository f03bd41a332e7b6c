"""The device a rank computes on: the real one, or an emulated one that keeps a set pace.

In: a Pace. Out: `now`, the time of the device, from which every recorded start and end is taken, and `cpu_ns`, the
processor time of the calling thread at such a moment.

Unpaced, `now` is the host's clock. Paced, the device has a *front*: the time up to which it is busy. An operation moves
the front by its set duration, a sync moves it to the sync's completion, and the process sleeps until the front is
reached. Real work, Python and gloo hide inside the set durations, as launches hide behind a GPU's queue; where this
machine is too slow to hide them, the front is pushed to the real time. The lateness is recorded either way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident

from labkit.pace import Pace, carried_ns

_RESERVE_DECAY = 0.9
_MAX_RESERVE = 0.5  # of an operation's duration


_WAKE_UP_NS = 120_000  # a sleeping process wakes up about so late here; the rest is spent spinning


def sleep_until(t_ns: int, alive: Callable[[], None] = lambda: None) -> None:
    """Return at `t_ns` of the monotonic clock, within some 10 us where a core is free. Calls `alive` every second."""
    left_ns = t_ns - time.monotonic_ns()
    while left_ns > _WAKE_UP_NS:
        time.sleep(min(1.0, (left_ns - _WAKE_UP_NS) / 1e9))
        alive()
        left_ns = t_ns - time.monotonic_ns()
    while time.monotonic_ns() < t_ns:
        pass


_CARRIED_NS = 20_000


class CarriedCpu:
    """Processor time of the calling thread in ns, at a moment of the monotonic clock that was just read.

    To ask for it is a system call, and costs as much as the rest of an event. An answer less than 20 us old is carried
    on as if the thread had run since: at most so much too high, and never less than the one before.
    """

    __slots__ = ("_asked_ns", "_cpu_ns", "_last_ns", "_thread")

    def __init__(self) -> None:
        self._thread = self._asked_ns = self._cpu_ns = self._last_ns = 0

    def __call__(self, t_ns: int) -> int:
        since_ns, thread = t_ns - self._asked_ns, get_ident()
        if since_ns < _CARRIED_NS and thread == self._thread:
            self._last_ns = cpu_ns = self._cpu_ns + since_ns
            return cpu_ns
        cpu_ns = time.thread_time_ns()
        if thread == self._thread and cpu_ns < self._last_ns:
            cpu_ns = self._last_ns
        self._thread, self._asked_ns, self._cpu_ns, self._last_ns = thread, t_ns, cpu_ns, cpu_ns
        return cpu_ns


def _asked_cpu(_: int) -> int:
    return time.thread_time_ns()


class Device:
    """One rank's device. Times in ns."""

    def __init__(
        self,
        pace: Pace | None = None,
        time_scale: float = 1.0,
        real_ns: Callable[[], int] | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._alive = alive  # told every second of a long sleep, so that it is not taken for a hang
        self.real_ns = real_ns or time.monotonic_ns  # on a GPU: marks on its stream, see cuda_clock
        self.paced = pace is not None
        self.pace = pace or Pace()
        self._scale = time_scale * 1e9
        self._front_ns = time.monotonic_ns()
        self.now: Callable[[], int] = self._front if self.paced else self.real_ns
        # Only the host's clock can carry a reading on; an emulated one, or marks on a GPU's stream, cannot.
        self.cpu_ns: Callable[[int], int] = _asked_cpu if self.paced or real_ns is not None else CarriedCpu()
        self._awake_ns = 0
        self._reserve_ns: dict[tuple[str, int], int] = {}

    def set_ns(self, duration_s: float) -> int:
        """A set duration of the plan, with its time scale."""
        return int(duration_s * self._scale)

    def sleep_until(self, t_ns: int) -> None:
        sleep_until(t_ns, self._alive)

    def _front(self) -> int:
        return self._front_ns

    def start_step(self) -> None:
        """A step starts when the process gets to it: what came between steps is not the device's."""
        self._front_ns = max(self._front_ns, time.monotonic_ns())

    def catch_up(self) -> None:
        """Work without a set duration: the device is not ahead of the real clock when it ends."""
        if self.paced:
            self._front_ns = max(self._front_ns, time.monotonic_ns())

    def block_until(self, t_ns: int) -> None:
        """The device can go on only when a sync has completed."""
        if t_ns > self._front_ns:
            self._front_ns = t_ns

    def advance(self, duration_ns: int, key: tuple[str, int]) -> None:
        """Start a piece of work of set duration: sleep away what the real work, done next, will not need.

        The real work stands at the end of its slot, so that what it triggers (a gradient bucket, an all-reduce of
        tensor parallelism) is issued when the emulated device would issue it. `key` names work of the same real cost.
        """
        self._front_ns += duration_ns
        reserve_ns = min(self._reserve_ns.get(key, 0), int(duration_ns * _MAX_RESERVE))
        self.sleep_until(self._front_ns - reserve_ns)
        self._awake_ns = time.monotonic_ns()

    def worked(self, key: tuple[str, int]) -> None:
        """The real work of `key` has ended: remember what it cost."""
        cost_ns = time.monotonic_ns() - self._awake_ns
        self._reserve_ns[key] = max(cost_ns, int(self._reserve_ns.get(key, 0) * _RESERVE_DECAY))

    def settle(self, duration_ns: int) -> int:
        """End of an operation: sleep until the front. Returns how late the real work was, in ns.

        A little lateness is left to the next operations, whose sleep is then shorter; were it added to the front,
        every late wake-up of this machine would stay in the schedule for good. Too much of it pushes the front.
        """
        late_ns = time.monotonic_ns() - self._front_ns
        if late_ns <= 0:
            self.sleep_until(self._front_ns)
            return 0
        if late_ns > carried_ns(duration_ns):
            self._front_ns += late_ns
        return late_ns
