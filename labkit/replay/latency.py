"""What a step costs on links of other latencies. In: a Trace. Out: step times, each of a replay."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from labkit.event import Kind
from labkit.link import Link
from labkit.replay.changes import Changes
from labkit.replay.graph import ReplayError
from labkit.replay.replayed import replay
from labkit.trace import Trace


def steps_by_latency(trace: Trace, latencies_s: Sequence[float], bandwidth_bytes_s: float = 25e9) -> list[float]:
    """What the last step takes in ns, by a replay for each latency, on links of one bandwidth.

    Where syncs follow one another, each waits for the latency once: the line rises by their number.
    """
    return [last_step_ns(replay(trace, Changes(link=Link(latency, bandwidth_bytes_s)))) for latency in latencies_s]


def last_step_ns(trace: Trace) -> float:
    """The longest time a rank needs for the last step. In the first ones torch sets up: DDP rebuilds its buckets."""
    steps = trace.of(Kind.STEP)
    if steps.is_empty():
        raise ReplayError("the trace holds no step event, so it has no step time: record 'compute'")
    last = steps.filter(pl.col("step") == pl.col("step").max())
    return float((last["end_ns"] - last["start_ns"]).max())
