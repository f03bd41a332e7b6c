"""Seats for ranks: on a machine that many people share, runs wait for their turn.

In: how many ranks a run needs. Out: its seats, after a wait in line; a place in line meanwhile. The line is a folder of
tickets that belong to this user, each held by a lock of the process that waits or runs: a process that dies lets go of
it, and nobody has to clean up. First come, first served: a run goes as soon as all before it and itself fit together.

`labkit lab --seats 8` sets the limits for every kernel that it starts, through the environment. Without them nothing
waits and nothing is limited.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from labkit.rules import PlanError

_LOOK_EVERY_S = 0.1
_REMEMBERED_RUNS = 20


@dataclass(frozen=True)
class Limits:
    """What one machine grants to all runs together, and to each. None: no limit."""

    seats: int | None = None
    """Ranks at work at once."""
    run_s: float | None = None
    """Longest time of one run."""
    memory_bytes: int | None = None
    """Most memory of one run's ranks together, private to them."""
    idle_s: float | None = None
    """How long waiting ranks stay warm."""

    def environment(self) -> dict[str, str]:
        """As variables, which `limits` reads."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {_variable(name): f"{value}" for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Place:
    """Where a run stands in line: 1 is next. `wait_s` is a guess from the last runs, None before there were any."""

    number: int
    wait_s: float | None


def limits(environment: Mapping[str, str] = os.environ) -> Limits:
    """The limits that the environment sets. ValueError for one that is no number above 0."""
    given = {one.name: environment.get(_variable(one.name)) for one in fields(Limits)}
    kinds = {"seats": int, "memory_bytes": int, "run_s": float, "idle_s": float}
    found = {}
    for name, text in given.items():
        if text:
            try:
                found[name] = kinds[name](text)
            except ValueError:
                raise ValueError(f"{_variable(name)}={text!r}: give a number above 0") from None
            if not found[name] > 0:
                raise ValueError(f"{_variable(name)}={text!r}: give a number above 0")
    return Limits(**found)


@contextlib.contextmanager
def seated(
    num_ranks: int, limit: int | None, on_wait: Callable[[Place], bool], folder: Path | None = None
) -> Iterator[None]:
    """Inside, the machine's ranks at work do not exceed `limit`, this run's included.

    `on_wait` hears the place in line, over and over while it lasts; once it returns False the place is given up, and
    InterruptedError raised. PlanError for a run that could never be seated.
    """
    if limit is None:
        yield
        return
    if num_ranks > limit:
        raise PlanError(
            f"the plan needs {num_ranks} ranks, and this machine is shared: it gives at most {limit} at once; "
            f"lower a degree"
        )
    line = _Line(folder or _own_folder(), limit)
    ticket = line.queue_up(num_ranks)
    try:
        while (place := line.place(ticket)) is not None:
            if not on_wait(place):
                raise InterruptedError("gave up its place in line")
            time.sleep(_LOOK_EVERY_S)
        started = time.monotonic()
        yield
        line.remember(time.monotonic() - started)
    finally:
        line.leave(ticket)


@dataclass(frozen=True)
class _Ticket:
    path: Path
    lock: int  # descriptor of the locked file

    @property
    def number(self) -> int:
        return _number(self.path)


class _Line:
    """The tickets of all runs, in order. Every look at them is under one lock."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit

    def queue_up(self, num_ranks: int) -> _Ticket:
        with self._locked():
            number = 1 + max((_number(path) for path in self._tickets()), default=0)
            path = self._folder / f"{number:010d}-{num_ranks}.ticket"
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        return _Ticket(path, descriptor)

    def place(self, ticket: _Ticket) -> Place | None:
        """None: it is seated."""
        with self._locked():
            before = [path for path in self._tickets() if _number(path) < ticket.number and not self._is_dead(path)]
        taken, waiting = 0, 0
        for path in before:
            taken += _num_ranks(path)
            waiting += taken > self._limit
        if taken + _num_ranks(ticket.path) <= self._limit:
            return None
        usual = self._usual_s()
        return Place(waiting + 1, None if usual is None else usual * (waiting + 1))

    def leave(self, ticket: _Ticket) -> None:
        with self._locked():
            ticket.path.unlink(missing_ok=True)
            os.close(ticket.lock)

    def remember(self, seconds: float) -> None:
        """How long a run took, for the guesses of those who wait."""
        with self._locked():
            took = [*self._took(), seconds][-_REMEMBERED_RUNS:]
            (self._folder / "took").write_text(" ".join(f"{one:.3f}" for one in took), encoding="ascii")

    def _took(self) -> list[float]:
        try:
            return [float(one) for one in (self._folder / "took").read_text(encoding="ascii").split()]
        except (OSError, ValueError):
            return []

    def _usual_s(self) -> float | None:
        took = self._took()
        return statistics.median(took) if took else None

    def _tickets(self) -> list[Path]:
        return sorted(self._folder.glob("*.ticket"))

    def _is_dead(self, path: Path) -> bool:
        """Whether nobody holds the ticket; then it is thrown away."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            path.unlink(missing_ok=True)
            return True
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _own_folder() -> Path:
    """This user's folder of tickets; one that others could write to is refused."""
    folder = Path(tempfile.gettempdir()) / f"labkit-seats-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if folder.is_symlink() or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise PermissionError(f"{folder} is not private to this user: remove it, and it is made anew")
    return folder


def _number(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _num_ranks(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def _variable(name: str) -> str:
    return f"LABKIT_{name.upper()}"
