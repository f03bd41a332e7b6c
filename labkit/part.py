"""What one rank sends away: integer rows of events and what their codes stand for.

In: a recorder's rows. Out: bytes for a pipe or a file, and back. Knows no table library, so ranks stay small.
"""

from typing import Any

import msgspec


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
    """What a rank started by torchrun leaves behind."""

    rank: int
    plan: dict[str, Any]
    layers: list[str]
    losses: list[list[float]]
    parts: list[bytes]
    step_seconds: list[float]
    first_step_seconds: float
    job: str  # names the torchrun job, so that files of two jobs are not mixed
