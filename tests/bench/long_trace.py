"""A trace of any length for the bench: a kept recording of a real run, over and over, each time later."""

import polars as pl

import labkit
from labkit.trace import Trace

KEPT = "hybrid_2x2.parquet"
"""Two pipelines of two stages, four ranks: stages, layers, messages, collectives, waits and what ranks hold."""


def long_trace(num_events: int) -> Trace:
    """The first `num_events` events, by start. Steps and the numbers of syncs go on counting."""
    from figures import ROOT

    kept = labkit.load(ROOT / "assets" / KEPT)
    once = kept.events.filter(pl.col("step").is_not_null())
    again = -(-num_events // once.height)
    span_ns, steps, syncs = (once[name].max() + 1 for name in ("end_ns", "step", "seq"))
    nth = pl.int_range(again, dtype=pl.Int64, eager=True).alias("nth").to_frame()
    events = nth.join(once, how="cross").with_columns(
        pl.col("start_ns", "end_ns") + pl.col("nth") * span_ns,
        (pl.col("step") + pl.col("nth") * steps).cast(pl.Int32),
        pl.col("seq") + pl.col("nth") * syncs,
    )
    events = events.select(once.columns).sort("start_ns", "rank", maintain_order=True)
    return Trace(events.head(num_events), kept.meta)
