"""One device: how long a matrix product and a pass over memory take on it.

In: rates from a data sheet and two or three measured efficiencies. Out: seconds. The efficiency of a matrix product
depends on its size, by two effects:

    depth    a product (m x k) @ (k x n) fills and drains its pipeline once: k / (k + half_depth)
    tiles    the result is cut into tiles of 128 x 256; the last round of `num_units` tiles is half empty on average:
             tiles / (tiles + num_units / 2), tiles = m n / (128 x 256)

A 4096 x 4096 x 4096 product on an A100 (108 units): 512 tiles, 512 / (512 + 54) = 0.905 of what a huge one reaches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit.link import Link

TILE = 128 * 256
"""Elements of the result that one unit computes at a time (the largest tile of NVIDIA's matrix libraries)."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """Rates of one device. Every field's origin stands in `sources`, by field name."""

    name: str
    peak_flops_s: Mapping[str, float]
    """Floating-point operations per second by dtype, as the data sheet says (dense)."""
    matmul_efficiency: float = 0.8
    """Share of the peak that a very large matrix product reaches."""
    half_depth: float = 128.0
    """Inner dimension k at which half of that is reached."""
    num_units: int = 1
    """Tiles computed at the same time (GPU: streaming multiprocessors)."""
    memory_bytes: float
    memory_bandwidth_bytes_s: float
    memory_efficiency: float = 0.8
    """Share of the memory bandwidth that a pass over a large tensor reaches."""
    forward_stretch: float = 2.0
    """How much slower than streaming a layer's forward passes over memory are: random numbers, what is not counted."""
    backward_stretch: float = 1.2
    """The same of its backward passes, which make no random numbers."""
    launch_s: float = 0.0
    """Host time to launch one kernel. Work of a layer takes no less than its kernels times this."""
    cpu_memory_bytes: float | None = None
    """CPU memory per device that offloaded state may use; None: no offload."""
    cpu_link: Link | None = None
    """Link between device and CPU memory, one direction."""
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.peak_flops_s:
            raise ValueError(
                f"device {self.name!r} has no peak_flops_s: give FLOP/s by dtype, e.g. {{'bfloat16': 312e12}}"
            )
        rates = {f"peak_flops_s[{dtype}]": rate for dtype, rate in self.peak_flops_s.items()}
        for name in _ABOVE_0:
            rates[name] = getattr(self, name)
        for name, value in rates.items():
            _check(self.name, name, value, 0, math.inf)
        for name in ("matmul_efficiency", "memory_efficiency"):
            _check(self.name, name, getattr(self, name), 0, 1)
        if not 0 <= self.launch_s < math.inf:
            raise ValueError(f"device {self.name!r}: launch_s={self.launch_s!r}: give a time in seconds, 0 or more")

    def peak(self, dtype: str) -> float:
        """FLOP/s for `dtype`."""
        if dtype not in self.peak_flops_s:
            known = ", ".join(self.peak_flops_s)
            raise ValueError(
                f"device {self.name!r} has no rate for {dtype!r}: known are {known}; add it to peak_flops_s"
            )
        return self.peak_flops_s[dtype]

    def efficiency(self, rows: float, columns: float, depth: float, *, batch: float = 1) -> float:
        """Share of the peak that `batch` products (rows x depth) @ (depth x columns) reach. See the module's head."""
        tiles = batch * rows * columns / TILE
        by_depth = depth / (depth + self.half_depth)
        return self.matmul_efficiency * by_depth * tiles / (tiles + self.num_units / 2)

    def matmul_s(
        self, rows: float, columns: float, depth: float, *, batch: float = 1, dtype: str = "bfloat16"
    ) -> float:
        """Seconds for `batch` products (rows x depth) @ (depth x columns): 2 rows columns depth FLOPs each."""
        flops = 2.0 * batch * rows * columns * depth
        return flops / (self.peak(dtype) * self.efficiency(rows, columns, depth, batch=batch))

    def stream_s(self, size_bytes: float) -> float:
        """Seconds to read or write `size_bytes` of device memory."""
        return size_bytes / (self.memory_bandwidth_bytes_s * self.memory_efficiency)


_ABOVE_0 = (
    "half_depth", "num_units", "memory_bytes", "memory_bandwidth_bytes_s", "forward_stretch", "backward_stretch"
)  # fmt: skip


def _check(device: str, name: str, value: object, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and low < value <= high and math.isfinite(value)):
        limit = f" and at most {high:g}" if high < math.inf else ""
        raise ValueError(f"device {device!r}: {name}={value!r}: give a finite number above {low:g}{limit}")
