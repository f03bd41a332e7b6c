"""A trace's events as CSV, for spreadsheets.

In: a `Trace`. Out: one line for each event, columns as in `event.COLUMNS`; lists as "0 1 2", values' bytes left out.

CSV has no place for metadata: where the times come from stands in the column `times` of every line.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from labkit.formats.target import whole_file
from labkit.trace import SCHEMA, Trace

_LISTS = [name for name, dtype in SCHEMA.items() if isinstance(dtype, pl.List)]


def write_csv(trace: Trace, path: Path) -> Path:
    """Write the events; `labkit.load` reads only Parquet, which also keeps the metadata and the values."""
    lists = [pl.col(name).list.eval(pl.element().cast(pl.String)).list.join(" ") for name in _LISTS]
    table = trace.events.drop("data").with_columns(*lists, pl.lit(trace.meta.source).alias("times"))
    with whole_file(path) as file:
        table.write_csv(file)
    return path
