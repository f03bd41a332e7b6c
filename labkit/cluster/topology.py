"""A cluster: devices in nodes, and which link each mesh axis uses.

In: a Device, links within and between nodes (or one per axis), a mesh. Out: seconds of a collective or a message along
an axis. Ranks fill nodes in order, tp fastest and pp slowest (see mesh.py), so tp stays inside a node if it fits.

Between nodes every device has its own share of the network, so a group with g ranks in each node uses g shares: a
ring through the nodes is as fast as the slower of the node's inside and g times `between`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from labkit.cluster.collective import ALGORITHMS, Curve, all_reduce_s, check_size, measured_all_reduce_s
from labkit.cluster.device import Device
from labkit.link import Link
from labkit.mesh import AXES, Mesh


class ClusterError(ValueError):
    """A cluster that cannot carry the plan, and what to change."""


@dataclass(frozen=True)
class Group:
    """Ranks of one collective: how many, and how many of them share a node."""

    num_ranks: int
    per_node: int

    @property
    def num_nodes(self) -> int:
        return -(-self.num_ranks // self.per_node)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Machines of one kind and how they are connected."""

    name: str
    device: Device
    gpus_per_node: int = 8
    within: Link | None = None
    """Between two devices of a node, one direction of one device."""
    between: Link | None = None
    """One device's share of the network between nodes, one direction."""
    axis_links: Mapping[str, Link] = field(default_factory=dict)
    """Links given for an axis; they win over `within` and `between`."""
    algorithm: str = "ring"
    """All-reduce within a node: ring, tree or nvswitch; between nodes it is always a ring."""
    within_efficiency: float = 1.0
    """Share of the bandwidth of `within` that syncs reach."""
    between_efficiency: float = 1.0
    """Share of the bandwidth of `between` that syncs reach."""
    all_reduce_curves: Mapping[int, Curve] = field(default_factory=dict)
    """Measured all-reduce within a node by number of ranks; they win over `algorithm`."""
    message_overhead_s: float = 0.0
    """What a message between pipeline ranks costs each of them besides the link: the host waits and starts anew."""
    step_overhead_s: float = 0.0
    """What a step takes besides: data loading, optimizer launch, logging."""
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ClusterError(f"all-reduce algorithm {self.algorithm!r}: known are {', '.join(ALGORITHMS)}")
        if self.gpus_per_node < 1:
            raise ClusterError(f"gpus_per_node={self.gpus_per_node!r}: give a whole number, 1 or more")
        for name in ("within_efficiency", "between_efficiency"):
            if not 0 < getattr(self, name) <= 1:
                raise ClusterError(f"{name}={getattr(self, name)!r}: give a share above 0 and at most 1")
        for axis in self.axis_links:
            if axis not in AXES:
                raise ClusterError(f"link for axis {axis!r}: the axes are {', '.join(AXES)}")

    def link(self, axis: str, group: Group) -> Link:
        """The link that `group` along `axis` is bound by. A missing one is an error, never a free one."""
        if axis in self.axis_links:
            return self.axis_links[axis]
        crossing = group.num_nodes > 1
        link = self.between if crossing else self.within
        if link is None:
            where = "between" if crossing else "within"
            raise ClusterError(
                f"cluster {self.name!r} has no link {where} nodes, which {group.num_ranks} ranks along {axis} need "
                f"({self.gpus_per_node} devices per node): give {where}=Link(...) or a link for axis {axis}, "
                f"or lower {axis} so that it stays within a node"
            )
        return link

    def collective_s(self, op: str, size_bytes: float, axis: str, group: Group) -> float:
        """Seconds of `op` on a tensor of `size_bytes` in all: all_reduce, all_gather, reduce_scatter, all_to_all.

        The last three put half an all-reduce's bytes on the wire and take half its time.
        """
        check_size(size_bytes)
        share = {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "all_to_all": 0.5}.get(op)
        if share is None:
            raise ValueError(f"collective {op!r}: known are all_reduce, all_gather, reduce_scatter, all_to_all")
        if group.num_ranks == 1 or not size_bytes:
            return 0.0
        link = self.effective_link(axis, group)
        if axis in self.axis_links:
            return share * all_reduce_s(link, size_bytes, group.num_ranks, self.algorithm)
        if group.num_nodes == 1:
            return share * self._within_s(size_bytes, group.num_ranks)
        return share * self._between_s(link, size_bytes, group)

    def _within_s(self, size_bytes: float, num_ranks: int) -> float:
        if self.all_reduce_curves:
            return measured_all_reduce_s(self.all_reduce_curves, size_bytes, num_ranks)
        link = _slower(self.within, self.within_efficiency)
        return all_reduce_s(link, size_bytes, num_ranks, self.algorithm)

    def _between_s(self, link: Link, size_bytes: float, group: Group) -> float:
        """A ring through all nodes, on the links of all its ranks in a node at once, or the node's inside if slower."""
        across = all_reduce_s(_slower(link, group.per_node), size_bytes, group.num_ranks)
        if group.per_node == 1 or self.within is None:
            return across
        return max(across, self._within_s(size_bytes, group.per_node))

    def message_s(self, size_bytes: float, axis: str, group: Group) -> float:
        """Seconds of one message to a neighbour along `axis`."""
        check_size(size_bytes)
        link = self.effective_link(axis, group)
        return self.message_overhead_s + link.latency_s + size_bytes / link.bandwidth_bytes_s

    def effective_link(self, axis: str, group: Group) -> Link:
        """The link that `group` along `axis` is bound by, with the bandwidth that syncs reach on it."""
        link = self.link(axis, group)
        if axis in self.axis_links:
            return link
        return _slower(link, self.between_efficiency if group.num_nodes > 1 else self.within_efficiency)

    def __str__(self) -> str:
        links = ", ".join(
            f"{where} {link}" for where, link in (("within", self.within), ("between", self.between)) if link
        )
        return f"{self.name}: {self.gpus_per_node} x {self.device.name} per node, {links or 'no link'}"


def _slower(link: Link, factor: float) -> Link:
    """The link with `factor` times its bandwidth."""
    return Link(link.latency_s, link.bandwidth_bytes_s * factor, link.name, link.source)


def group_of(axis: str, mesh: Mesh, gpus_per_node: int) -> Group:
    """How the ranks along `axis` lie in nodes that ranks fill in order, tp fastest.

    Mesh(pp=2, dp=4, tp=4) in nodes of 8: tp (4, 4 per node), dp (4, 2 per node: ranks 0 and 4), pp (2, 1 per node).
    """
    size = getattr(mesh, axis)
    stride = {"tp": 1, "dp": mesh.tp, "pp": mesh.tp * mesh.dp}[axis]
    return Group(size, min(size, max(1, gpus_per_node // stride)))


# ---- files


def save(cluster: Cluster, path: str | os.PathLike[str]) -> Path:
    """Write the cluster as JSON that `load` reads."""
    path = Path(path)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(_plain(cluster))) + b"\n")
    return path


def load(path: str | os.PathLike[str]) -> Cluster:
    """The cluster in a JSON file that `save` or `labkit calibrate` wrote."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Cluster)
    except OSError as error:
        raise ClusterError(f"cannot read the cluster file {path}: {error}") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise ClusterError(
            f"{path} is no cluster: {error}; `labkit calibrate --out` writes the form to follow"
        ) from None


def _plain(cluster: Cluster) -> dict[str, Any]:
    return msgspec.to_builtins(cluster, str_keys=True)
