"""Which rank sits where: the grid of ranks with axes pp, dp, tp. Pure arithmetic.

In: the three degrees. Out: coordinates, groups and neighbours of any rank. tp varies fastest, pp slowest, so tensor
parallel neighbours are adjacent ranks (they talk most, so on real machines they share a node).

Mesh(pp=2, dp=2, tp=2): rank 5 = 0b101 sits at pp 1, dp 0, tp 1; its dp group is (5, 7).
"""

from collections.abc import Sequence
from dataclasses import dataclass

AXES = ("pp", "dp", "tp")


@dataclass(frozen=True)
class Mesh:
    """A pp x dp x tp grid of ranks."""

    pp: int = 1
    dp: int = 1
    tp: int = 1

    @property
    def num_ranks(self) -> int:
        return self.pp * self.dp * self.tp

    def coordinate(self, rank: int) -> dict[str, int]:
        """Position of `rank` on every axis, e.g. {"pp": 1, "dp": 0, "tp": 1}."""
        if not 0 <= rank < self.num_ranks:
            raise ValueError(f"rank {rank} is not in a mesh of {self.num_ranks} ranks: give 0 to {self.num_ranks - 1}")
        return {"pp": rank // (self.dp * self.tp), "dp": rank // self.tp % self.dp, "tp": rank % self.tp}

    def rank(self, *, pp: int = 0, dp: int = 0, tp: int = 0) -> int:
        """The rank at a position."""
        return (pp * self.dp + dp) * self.tp + tp

    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """Ranks that differ from `rank` only along `axis`, `rank` included, ascending."""
        here = self.coordinate(rank)
        return tuple(self.rank(**{**here, axis: i}) for i in range(getattr(self, axis)))

    def groups(self, axis: str) -> tuple[tuple[int, ...], ...]:
        """All groups along `axis`, each once."""
        return tuple(sorted({self.group(axis, rank) for rank in range(self.num_ranks)}))

    def axis_of(self, ranks: Sequence[int]) -> str:
        """The axes along which `ranks` differ, joined by "+": ("dp"), ("dp+tp"); "self" for a single rank.

        Mesh(pp=2, dp=2).axis_of((0, 1)) == "dp"; of (0, 1, 2, 3) == "pp+dp".
        """
        positions = [self.coordinate(rank) for rank in ranks]
        varying = [axis for axis in AXES if len({position[axis] for position in positions}) > 1]
        return "+".join(varying) or "self"
