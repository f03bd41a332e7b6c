"""One training over several links: what its syncs and steps take on each, and where the link stops mattering.

In: traces of runs over emulated links, or one of them and links to replay it over. Out: tables, in the links' own time:
what a plan's time_scale slowed down is divided by it again. Only the last step counts: in the first two DDP is still
settling its buckets. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from labkit import analysis
from labkit.link import Link, as_link, wire_bytes
from labkit.replay import Changes, replay, step_ns
from labkit.trace import Trace


@dataclass(frozen=True)
class Line:
    """y = intercept + slope x; `residual`: the largest distance of a point from it, in y."""

    intercept: float
    slope: float
    residual: float


def line_through(x: Iterable[float], y: Iterable[float]) -> Line:
    """The line of least squares. Raises ValueError for fewer than two different x."""
    x, y = np.asarray([*x], float), np.asarray([*y], float)
    if len(np.unique(x)) < 2:
        raise ValueError(f"a line needs points at two places at least, there are {len(np.unique(x))}")
    slope, intercept = np.polyfit(x, y, 1)
    return Line(float(intercept), float(slope), float(np.abs(intercept + slope * x - y).max()))


_SYNCS = {
    "bandwidth_bytes_s": pl.Float64,
    "latency_s": pl.Float64,
    "wire_bytes": pl.Float64,
    "took_s": pl.Float64,
}


def sync_times(traces: Iterable[Trace]) -> pl.DataFrame:
    """Every collective that went over a set link.

    Columns bandwidth_bytes_s and latency_s of the link, wire_bytes (what one rank put on it, `link.wire_bytes`), took_s
    (from the arrival of the last rank to completion).
    """
    rows = []
    for trace in traces:
        links = _links(trace)
        for call in analysis.collectives(_last_step(trace)).filter(pl.col("axis").is_in([*links])).to_dicts():
            link, size = links[call["axis"]], wire_bytes(call["op"], call["size_bytes"], call["found"])
            rows.append((link.bandwidth_bytes_s, link.latency_s, size, call["transfer_ns"] / 1e9 / _scale(trace)))
    return pl.DataFrame(rows, schema=_SYNCS, orient="row")


_STEPS = ("compute", "hidden", "exposed", "idle", "step")


def link_table(traces: Mapping[str, Trace]) -> pl.DataFrame:
    """What a step of a rank is made of, a row per run; the mean over ranks.

    Columns name; compute_us (nothing else under way), hidden_us (a sync behind computation), exposed_us (a sync and no
    computation), idle_us; step_us, which they add up to.
    """
    rows = [(name, *_step_parts_us(trace)) for name, trace in traces.items()]
    return pl.DataFrame(rows, schema=["name", *(f"{part}_us" for part in _STEPS)], orient="row")


def _step_parts_us(trace: Trace) -> list[float]:
    columns = ("compute_ns", "overlapped_sync_ns", "exposed_sync_ns", "idle_ns", "window_ns")
    mean_ns = analysis.breakdown(_last_step(trace)).select(columns).mean().row(0)
    return [each_ns / 1e3 / _scale(trace) for each_ns in mean_ns]


def step_us(trace: Trace) -> float:
    """How long a step takes: the slowest rank's."""
    return step_ns(_last_step(trace)) / 1e3 / _scale(trace)


def _last_step(trace: Trace) -> Trace:
    return Trace(trace.events.filter(pl.col("step") == pl.col("step").max()), trace.meta)


def replayed_steps(trace: Trace, links: Iterable[Link | str]) -> pl.DataFrame:
    """What a step of this run would take over other links: columns bandwidth_bytes_s, step_us."""
    links = [as_link(link) for link in links]
    rows = [(link.bandwidth_bytes_s, step_us(replay(trace, Changes(link=link)))) for link in links]
    return pl.DataFrame(rows, schema={"bandwidth_bytes_s": pl.Float64, "step_us": pl.Float64}, orient="row")


def bandwidth_of(trace: Trace, axis: str = "dp") -> float:
    """Bytes per second of the link that was set for an axis. Raises ValueError where none was."""
    links = _links(trace)
    if axis not in links:
        raise ValueError(f"no link is set for {axis}: this run has links for {', '.join(links) or 'no axis'}")
    return links[axis].bandwidth_bytes_s


def _links(trace: Trace) -> dict[str, Link]:
    plain = (trace.meta.plan or {}).get("link") or {}
    return {axis: Link(link["latency_s"], link["bandwidth_bytes_s"]) for axis, link in plain.items()}


def _scale(trace: Trace) -> float:
    return (trace.meta.plan or {}).get("time_scale", 1.0)
