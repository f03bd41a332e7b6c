"""What a timeline works out only when its reader asks: the critical path, and why ranks stood still.

In: a `Trace`. Out: plain data for `static/answers.js`.
"""

from typing import Any

import polars as pl

from labkit.analysis import critical_path
from labkit.explain import explain
from labkit.trace import Trace

MAX_PATH_STEPS = 8
"""Steps whose paths are shown together, the first ones: each takes a tenth of a second or more."""

MAX_GAPS = 5000
"""Gaps that are explained, the longest ones."""


def path_segments(trace: Trace, step: int | None) -> dict[str, Any]:
    """The critical path of a step, or of all (up to `MAX_PATH_STEPS`), as {steps, segments}.

    A segment is [rank, start_ns, end_ns, what, row of its event in trace.events or -1]; `what` is work, or the cause of
    a wait. They follow each other in time.
    """
    known = trace.events["step"].drop_nulls().unique().sort().to_list()
    steps = [step] if step is not None else known[:MAX_PATH_STEPS] or [None]
    segments = [list(segment) for one in steps for segment in _path_of(trace, one)]
    return {"steps": [one for one in steps if one is not None], "segments": segments}


def _path_of(trace: Trace, step: int | None) -> list[tuple[Any, ...]]:
    try:
        path = critical_path(trace, step)
    except ValueError:  # a step of no length is none to the analysis
        return []
    return path.select("rank", "start_ns", "end_ns", "what", pl.col("event").cast(pl.Int64).fill_null(-1)).rows()


def gap_causes(trace: Trace) -> dict[str, Any]:
    """Why ranks stood still: {gaps: [[rank, start_ns, end_ns, place in sentences]], sentences}, gaps by start."""
    gaps = explain(trace).top_k(MAX_GAPS, by="duration_ns").sort("start_ns", "end_ns")
    place = {sentence: k for k, sentence in enumerate(gaps["sentence"].unique(maintain_order=True))}
    rows = gaps.select("rank", "start_ns", "end_ns", "sentence").iter_rows()
    return {"gaps": [[*row, place[sentence]] for *row, sentence in rows], "sentences": list(place)}
