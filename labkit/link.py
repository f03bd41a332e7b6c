"""What carries data between ranks: latency, bandwidth, and how long an operation occupies it.

In: a preset's name or "latency=5ms,bandwidth=100MB/s". Out: a `Link`, and `link_seconds` for one operation. A plan with
a link holds every sync back until the link would have finished it (an emulated link); without one, syncs take what
gloo or NCCL needs on this machine.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from labkit import quantity


@dataclass(frozen=True)
class Link:
    """One direction of a connection of one rank. `source` says where the numbers come from."""

    latency_s: float
    bandwidth_bytes_s: float
    name: str = "own"
    source: str = "given in the plan"

    def __post_init__(self) -> None:
        if not (isinstance(self.latency_s, int | float) and 0 <= self.latency_s < float("inf")):
            raise ValueError(f"link latency {self.latency_s!r} s: give a time of 0 or more, e.g. latency=5us")
        if not (isinstance(self.bandwidth_bytes_s, int | float) and self.bandwidth_bytes_s > 0):
            raise ValueError(f"link bandwidth {self.bandwidth_bytes_s!r}: give a rate above 0, e.g. bandwidth=25GB/s")

    def __str__(self) -> str:
        return f"{self.name} ({self.latency_s * 1e6:g} us, {self.bandwidth_bytes_s / 1e9:g} GB/s)"


_NVLINK_3 = "NVIDIA A100 data sheet: 600 GB/s both directions together"
_NVLINK_4 = "NVIDIA H100 data sheet: 900 GB/s both directions together"

PRESETS = {
    link.name: link
    for link in (
        Link(2.0e-6, 300e9, "nvlink3", _NVLINK_3 + "; latency: order of magnitude of a GPU-to-GPU copy"),
        Link(2.0e-6, 450e9, "nvlink4", _NVLINK_4 + "; latency: order of magnitude of a GPU-to-GPU copy"),
        Link(5.0e-6, 32e9, "pcie4", "PCI Express 4.0 x16: 16 GT/s x 16 lanes, about 32 GB/s a direction"),
        Link(5.0e-6, 63e9, "pcie5", "PCI Express 5.0 x16: 32 GT/s x 16 lanes, about 63 GB/s a direction"),
        Link(5.0e-6, 25e9, "ib200", "200 Gb/s InfiniBand HDR: 25 GB/s a direction"),
        Link(50e-6, 1.25e9, "eth10", "10 Gb/s Ethernet: 1.25 GB/s a direction"),
        Link(100e-6, 0.125e9, "eth1", "1 Gb/s Ethernet: 0.125 GB/s a direction"),
    )
}
"""Known links by name. Bandwidths are the cited line rates per direction; latencies are round figures, not measured."""


def as_link(spec: Link | str | Mapping[str, object]) -> Link:
    """A link from a preset's name, from "latency=5ms,bandwidth=100MB/s", or from a mapping with those two keys."""
    if isinstance(spec, Link):
        return spec
    if isinstance(spec, Mapping):
        return _from_mapping(spec)
    if "=" in spec:
        return _from_mapping(dict(part.partition("=")[::2] for part in spec.split(",")))
    if spec not in PRESETS:
        close = difflib.get_close_matches(spec, PRESETS, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(
            f"unknown link {spec!r}: {hint}known are {', '.join(PRESETS)}; or write latency=5us,bandwidth=25GB/s"
        )
    return PRESETS[spec]


def _from_mapping(spec: Mapping[str, object]) -> Link:
    if {"latency_s", "bandwidth_bytes_s"} <= set(spec):
        return Link(**spec)
    if set(spec) != {"latency", "bandwidth"}:
        raise ValueError(f"link {dict(spec)}: give latency and bandwidth, e.g. latency=5us,bandwidth=25GB/s")
    return Link(quantity.seconds(spec["latency"]), quantity.bytes_per_second(spec["bandwidth"]))


_WIRE_SHARE = {
    # Bytes each rank must send, as a share of `size_bytes`, on a ring of n ranks (nccl-tests, "Performance").
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}


def wire_bytes(op: str, size_bytes: float, num_ranks: int) -> float:
    """Bytes that one rank puts on its link for `op` on a tensor of `size_bytes` (whole tensor, see event.COLUMNS).

    all_reduce of 8 bytes over 4 ranks: 2 * 3/4 * 8 = 12. Send, recv, broadcast and the rest: the tensor once.
    """
    share = _WIRE_SHARE.get(op)
    return size_bytes if share is None else size_bytes * share(num_ranks)


def link_seconds(link: Link, op: str, size_bytes: float, num_ranks: int) -> tuple[float, float]:
    """(latency, transfer) in seconds: the link is busy for `transfer`; the data is there `latency` later."""
    return link.latency_s, wire_bytes(op, size_bytes, num_ranks) / link.bandwidth_bytes_s
