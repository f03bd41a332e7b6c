"""Under which other conditions a captured run is replayed. In: what people write. Out: a checked, frozen `Changes`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.link import Link, as_link
from labkit.mesh import AXES


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is different. `Changes()` replays the run as it was.

    link          another link: a preset or "latency=5us,bandwidth=25GB/s" for all axes, or one per axis
    slow_ranks    rank -> factor on all its own work inside the steps (2: half as fast)
    compute       factor on every stage, layer, loss and optimizer (0.5: twice as fast)
    device_time   "cpu": a piece of work takes the CPU time it used, and a sync the least that its like took, which
                  takes waiting for a core out of the picture; "wall": what the clock said
    no_sync       every sync costs nothing; ranks still wait for each other
    infinite_bandwidth  every sync costs its latency only
    """

    link: Mapping[str, Link] = field(default_factory=dict)
    slow_ranks: Mapping[int, float] = field(default_factory=dict)
    compute: float = 1.0
    device_time: Literal["wall", "cpu"] = "wall"
    no_sync: bool = False
    infinite_bandwidth: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "link", _links(self.link))
        object.__setattr__(self, "slow_ranks", dict(self.slow_ranks))
        _check_factor("compute", self.compute, "0.5 for twice as fast")
        for rank, factor in self.slow_ranks.items():
            if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
                raise ValueError(f"slow rank {rank!r}: give a rank from 0, e.g. {{2: 1.5}}")
            _check_factor(f"slow rank {rank}", factor, "1.5 for half as long again")
        if self.device_time not in ("wall", "cpu"):
            raise ValueError(f"device_time {self.device_time!r}: give 'wall' (the clock) or 'cpu' (CPU time)")
        if self.no_sync and (self.link or self.infinite_bandwidth):
            other = "a link" if self.link else "infinite_bandwidth"
            raise ValueError(f"no_sync makes every sync free, so {other} beside it means nothing: give one of them")

    def words(self) -> tuple[str, ...]:
        """What is changed, for people. Empty: nothing is."""
        found = [f"{axis} link: {link}" for axis, link in self.link.items()]
        if len(set(self.link.values())) == 1 and set(self.link) == set(AXES):
            found = [f"link: {next(iter(self.link.values()))}"]
        found += [f"rank {rank} takes {factor:g} times as long" for rank, factor in self.slow_ranks.items()]
        found += [f"compute takes {self.compute:g} times as long"] if self.compute != 1 else []
        found += ["CPU time as device time"] if self.device_time == "cpu" else []
        found += ["syncs cost nothing"] if self.no_sync else []
        found += ["infinite bandwidth"] if self.infinite_bandwidth else []
        return tuple(found)


def _links(spec: Any) -> dict[str, Link]:
    """One link for all axes, or one per axis."""
    if not spec:
        return {}
    if isinstance(spec, Mapping) and not {"latency", "latency_s"} & set(spec):
        unknown = sorted(set(spec) - set(AXES))
        if unknown:
            raise ValueError(f"link of axis {unknown[0]!r}: the axes are {', '.join(AXES)}")
        return {axis: as_link(link) for axis, link in spec.items()}
    return dict.fromkeys(AXES, as_link(spec))


def _check_factor(what: str, factor: Any, example: str) -> None:
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not (number and math.isfinite(factor) and factor > 0):
        raise ValueError(f"{what}: factor {factor!r} is no time factor: give a finite number above 0, e.g. {example}")
