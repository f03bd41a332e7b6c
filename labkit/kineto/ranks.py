"""Which rank a file, or a process in a file, is of.

In: what the files say. Out: a rank for each, all different, with a note wherever it had to be worked out.

In this order: the rank given by the caller, `distributedInfo.rank`, the "Rank" that newer collectives carry, the file's
name (rank3, rank_3), the lowest free number in the order given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.kineto.file import ProfilerFile
from labkit.trace import TraceError

_IN_NAME = re.compile(r"rank[-_ ]?(\d{1,7})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Claim:
    """The rank a process says it is, and where it says so; None where it does not."""

    name: str  # of the file, and of the process in it where there are several
    rank: int | None
    source: str = ""


def claim_of(file: ProfilerFile) -> Claim:
    """What a file with one process says."""
    rank = file.distributed.get("rank")
    if isinstance(rank, int) and 0 <= rank < 2**31:
        return Claim(file.path.name, rank, "distributedInfo")
    told = next((args.rank for args in file.args.values() if isinstance(args.rank, int)), None)
    if told is not None and 0 <= told < 2**31:
        return Claim(file.path.name, told, "its collectives")
    named = _IN_NAME.search(file.path.name)
    return Claim(file.path.name, int(named[1]), "the file's name") if named else Claim(file.path.name, None)


def settle(claims: Sequence[Claim], given: Sequence[int] | None) -> tuple[list[int], list[str]]:
    """A different rank for every claim, and notes on those that were worked out."""
    if given is not None:
        return _given(claims, given), []
    ranks: list[int | None] = []
    for claim in claims:
        ranks.append(claim.rank if claim.rank not in ranks else None)
    taken, notes = {rank for rank in ranks if rank is not None}, []
    for i, claim in enumerate(claims):
        if ranks[i] is None:
            ranks[i] = next(rank for rank in range(len(taken) + 1) if rank not in taken)
            taken.add(ranks[i])
        note = _note(claim, ranks[i])
        notes += [note] if note else []
    return [rank for rank in ranks if rank is not None], notes


def _note(claim: Claim, rank: int) -> str | None:
    if claim.rank is None:
        return f"{claim.name}: does not say its rank: taken as rank {rank}; --rank sets it"
    if claim.rank != rank:
        return f"{claim.name}: says rank {claim.rank} like another one: taken as rank {rank}; --rank sets it"
    return None if claim.source == "distributedInfo" else f"{claim.name}: rank {rank}, from {claim.source}"


def _given(claims: Sequence[Claim], given: Sequence[int]) -> list[int]:
    if len(given) != len(claims):
        names = ", ".join(claim.name for claim in claims)
        raise TraceError(f"{len(given)} ranks given for {len(claims)} processes ({names}): give one rank for each")
    for rank in given:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < 2**31:
            raise TraceError(f"rank {rank!r}: give a whole number of 0 or more")
    if len(set(given)) < len(given):
        raise TraceError(f"ranks {list(given)}: give every file another rank")
    return list(given)
