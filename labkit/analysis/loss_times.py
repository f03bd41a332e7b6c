"""When each loss was known.

In: a Trace. Out: times, for the loss against time.
"""

from __future__ import annotations

import polars as pl

from labkit.event import Kind
from labkit.trace import Trace


def loss_times_ns(trace: Trace) -> list[int]:
    """When the last rank had done each step, in ns since the first rank began the first one; empty without steps."""
    steps = trace.of(Kind.STEP)
    ends = steps.group_by("step").agg(pl.col("end_ns").max()).sort("step")["end_ns"]
    return (ends - steps["start_ns"].min()).to_list() if steps.height else []
