"""How long an all-reduce takes: three algorithms as closed forms, or a measured curve.

In: a link, the number of ranks, bytes. Out: seconds. n ranks, S bytes, latency a per hop, B bytes/s per direction:

    ring     2 (n-1) a + 2 (n-1)/n S / B        Patarasuk and Yuan 2009, JPDC 69(2); every rank sends 2 (n-1)/n S
    tree     2 log2(n) a + 2 S / B              Sanders, Speck and Traff 2009, Parallel Computing 35(12): two trees
    nvswitch 2 a + (n+1)/n S / B                switches add: send S, receive S/n, then back (NVIDIA SHARP on NVLink)

4 ranks, 8 MB, 10 us, 1 GB/s, ring: 6 x 10 us + 12 MB / 1 GB/s = 12.06 ms.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.link import Link

ALGORITHMS = {
    "ring": lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    "tree": lambda n: (2 * math.ceil(math.log2(n)), 2.0),
    "nvswitch": lambda n: (2, (n + 1) / n),
}
"""By name: number of ranks -> (hops, bytes per link as a share of the tensor)."""


def all_reduce_s(link: Link, size_bytes: float, num_ranks: int, algorithm: str = "ring") -> float:
    """Seconds of an all-reduce of `size_bytes` over `num_ranks` ranks that each have one `link`."""
    check_size(size_bytes)
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown all-reduce algorithm {algorithm!r}: known are {', '.join(ALGORITHMS)}")
    if num_ranks < 1:
        raise ValueError(f"all-reduce over {num_ranks} ranks: give 1 or more")
    if num_ranks == 1 or not size_bytes:
        return 0.0
    hops, share = ALGORITHMS[algorithm](num_ranks)
    return hops * link.latency_s + share * size_bytes / link.bandwidth_bytes_s


@dataclass(frozen=True)
class Curve:
    """Measured seconds over sizes, straight between the points.

    Below the first point it falls to `floor_s`; beyond the last it goes on with the last point's bandwidth.
    Curve(1, (10, 20), (2.0, 3.0)).seconds(15) == 2.5; of 5: 1.5; of 40: 3 + 20 * (3 / 20) = 6.
    """

    floor_s: float
    sizes_bytes: tuple[float, ...]
    times_s: tuple[float, ...]
    source: str = "given"

    def __post_init__(self) -> None:
        sizes, times = self.sizes_bytes, self.times_s
        if not sizes or len(sizes) != len(times):
            raise ValueError(f"a curve of {len(sizes)} sizes and {len(times)} times: give as many of each, 1 or more")
        if list(sizes) != sorted(set(sizes)) or not all(0 < value < math.inf for value in (*sizes, *times)):
            raise ValueError(f"curve sizes {sizes} and times {times}: give rising sizes and finite times above 0")
        if not 0 <= self.floor_s <= times[0]:
            raise ValueError(f"curve floor {self.floor_s!r} s: give 0 up to the first time, {times[0]:g} s")

    def seconds(self, size_bytes: float) -> float:
        """Seconds for `size_bytes`."""
        sizes, times = self.sizes_bytes, self.times_s
        after = bisect_right(sizes, size_bytes)
        if after == len(sizes):
            return times[-1] + (size_bytes - sizes[-1]) * times[-1] / sizes[-1]
        size_0, time_0 = (sizes[after - 1], times[after - 1]) if after else (0.0, self.floor_s)
        return time_0 + (size_bytes - size_0) * (times[after] - time_0) / (sizes[after] - size_0)


def measured_all_reduce_s(curves: Mapping[int, Curve], size_bytes: float, num_ranks: int) -> float:
    """From measured curves by number of ranks. For a number between two, in proportion; beyond them, by the wire bytes.

    Curves of 2 and 4 ranks answer for 3 with the mean of both, for 8 with that of 4 times (7/8) / (3/4).
    """
    if num_ranks in curves:
        return curves[num_ranks].seconds(size_bytes)
    below = max((n for n in curves if n < num_ranks), default=None)
    above = min((n for n in curves if n > num_ranks), default=None)
    if below is None or above is None:
        nearest = below or above
        return curves[nearest].seconds(size_bytes) * (1 - 1 / num_ranks) / (1 - 1 / nearest)
    weight = (num_ranks - below) / (above - below)
    return (1 - weight) * curves[below].seconds(size_bytes) + weight * curves[above].seconds(size_bytes)


def check_size(size_bytes: float) -> None:
    """Refuse a size that is no size."""
    if not 0 <= size_bytes < math.inf:
        raise ValueError(f"size_bytes={size_bytes!r}: give a finite number of bytes, 0 or more")
