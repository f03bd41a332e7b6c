"""What one rank sends away: integer rows of events and what their codes stand for.

In: a recorder's rows. Out: bytes for a pipe or a file, and back. Knows no table library, so ranks stay small.
"""

from pathlib import Path
from typing import Any

import msgspec

from labkit.hosts import ClockReading


class Names(msgspec.Struct, frozen=True):
    """What the codes in a part's integer rows stand for."""

    layers: list[str]
    ops: list[str]
    groups: list[list[int]]
    dtypes: list[str]


class Part(msgspec.Struct, frozen=True):
    """What one rank recorded since its last part."""

    rank: int
    names: Names
    rows: bytes  # int64, row by row, the columns of event.FIELDS
    samples: list[list[int]] = []  # rows of kind "load" point here by `extra`
    values: list[tuple[list[int], bytes]] = []  # rows of kind "value": (shape, data)
    dropped: int = 0


def encode_part(part: Part) -> bytes:
    return msgspec.msgpack.encode(part)


def decode_part(data: bytes) -> Part:
    return msgspec.msgpack.decode(data, type=Part)


class RankFile(msgspec.Struct, frozen=True):
    """What a rank started by torchrun leaves behind: of a plan, or of a user's own script (then `plan` is None)."""

    rank: int
    plan: dict[str, Any] | None
    layers: list[str]
    losses: list[list[float]]
    parts: list[bytes]
    step_seconds: list[float]
    first_step_seconds: float
    job: str  # names the torchrun job, so that files of two jobs are not mixed
    num_ranks: int = 0  # of a script
    degrees: dict[str, int] = {}  # of a script's mesh, as far as it told them
    script: str = ""
    node: str = ""  # the host it ran on
    clock: list[ClockReading] = []  # on the first rank of every host but rank 0's
    torch: str = ""

    def save(self, folder: Path) -> None:
        """Write rank<N>.labkit; an earlier one stays whole until the new one is. Raises OSError."""
        path = folder / f"rank{self.rank}.labkit"
        partial = path.with_suffix(".partial")
        try:
            partial.write_bytes(msgspec.msgpack.encode(self))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
