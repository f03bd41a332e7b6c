"""One step of a run, small: the picture on a card of the home page.

In: a `Trace`. Out: plain data, rows of spans in thousandths of the step's time, which the page draws and plays.
"""

from typing import Any

import polars as pl

from labkit.event import STAGE_KINDS
from labkit.trace import Trace
from labkit.view.theme import LOOK_OF_KIND, look

WIDE = 1000
MAX_ROWS = 8
MAX_SPANS = 600
KINDS = (*map(str, STAGE_KINDS), "optimizer", "sync")


def thumbnail(trace: Trace) -> dict[str, Any] | None:
    """{source, rows, looks: {name: [light, dark]}, spans: [[row, from, to, look]]} of the second step, else the first.

    Syncs are drawn below a row's work. None for a trace without work.
    """
    steps = trace.of(*STAGE_KINDS)["step"].drop_nulls().unique().sort()
    if steps.is_empty():
        return None
    of_step = trace.of(*KINDS).filter(pl.col("step") == steps[min(1, len(steps) - 1)], pl.col("rank") < MAX_ROWS)
    start_ns, end_ns = of_step["start_ns"].min(), of_step["end_ns"].max()
    spans = [
        [rank, *(round(WIDE * (t - start_ns) / max(1, end_ns - start_ns)) for t in (start, end)), LOOK_OF_KIND[kind]]
        for rank, kind, start, end in of_step.sort("end_ns")
        .select("rank", pl.col("kind").cast(pl.String), "start_ns", "end_ns")
        .head(MAX_SPANS)
        .iter_rows()
    ]
    names = dict.fromkeys(span[3] for span in spans)
    return {
        "source": trace.meta.source,
        "rows": int(of_step["rank"].max()) + 1,
        "looks": {name: [look(name).light, look(name).dark] for name in names},
        "spans": spans,
    }
