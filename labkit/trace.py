"""All ranks' events in one table, with what is needed to read it. Save, load, merge.

In: the parts that recorders wrote (one or more per rank). Out: a `Trace`, on which analysis, replay and pictures work.
A trace is one Parquet file with its metadata inside; nothing in it is ever unpickled or evaluated.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from labkit.event import FIELDS, KINDS, NONE
from labkit.mesh import Mesh
from labkit.part import Part

SCHEMA = {
    "rank": pl.Int32,
    "kind": pl.Enum([str(kind) for kind in KINDS]),
    "step": pl.Int32,
    "microbatch": pl.Int32,
    "stage": pl.Int32,
    "layer": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "cpu_ns": pl.Int64,
    "late_ns": pl.Int64,
    "op": pl.String,
    "axis": pl.String,
    "group": pl.List(pl.Int32),
    "peer": pl.Int32,
    "size_bytes": pl.Int64,
    "dtype": pl.String,
    "seq": pl.Int64,
    "param_bytes": pl.Int64,
    "grad_bytes": pl.Int64,
    "optimizer_bytes": pl.Int64,
    "activation_bytes": pl.Int64,
    "samples": pl.List(pl.Int32),
    "shape": pl.List(pl.Int32),
    "data": pl.Binary,
}

SOURCES = {
    "measured": "a real run at this machine's own speed",
    "paced": "a real run whose speeds were set; every message and gradient is real",
    "planned": "drawn from a schedule; nothing was run",
    "replayed": "a captured run under other conditions, computed",
    "predicted": "computed from a plan and a cluster; nothing was run",
    "imported": "another tool's trace file",
}
"""Where a trace's times come from. Every picture repeats the word."""

_METADATA_KEY = "labkit"


class TraceError(ValueError):
    """A file or table that is no trace."""


@dataclass(frozen=True)
class Meta:
    """What a trace is of. All of it is plain data and goes into the file as JSON."""

    source: str  # one of SOURCES
    plan: dict[str, Any] | None = None
    num_ranks: int = 1
    layers: tuple[str, ...] = ()  # named layers in order
    losses: tuple[float, ...] = ()  # global loss of every step
    versions: dict[str, str] = field(default_factory=dict)
    num_cores: int = 0
    clock: str = "monotonic"
    dropped_events: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    equality: dict[str, float | bool] | None = None  # against the serial run, where that was asked for
    notes: tuple[str, ...] = ()  # what a reader must know: repairs, limits, emulation that did not keep up
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise TraceError(f"trace source {self.source!r}: known are {', '.join(SOURCES)}")

    @property
    def mesh(self) -> Mesh:
        plan = self.plan or {}
        return Mesh(*(int(plan.get(axis, 1)) for axis in ("pp", "dp", "tp"))) if plan else Mesh(dp=self.num_ranks)


@dataclass(frozen=True)
class Trace:
    """Events of all ranks, sorted by start, with `meta`. Columns: event.COLUMNS."""

    events: pl.DataFrame
    meta: Meta

    def of(self, *kinds: str) -> pl.DataFrame:
        """The events of the given kinds."""
        return self.events.filter(pl.col("kind").cast(pl.String).is_in([str(kind) for kind in kinds]))

    @property
    def title(self) -> str:
        """One line that says what was run and where its times come from."""
        plan = self.meta.plan or {}
        degrees = " x ".join(f"{axis} {plan[axis]}" for axis in ("dp", "tp", "pp") if plan.get(axis, 1) > 1)
        ranks = degrees or ("one rank" if self.meta.num_ranks == 1 else f"{self.meta.num_ranks} ranks")
        what = f"{plan.get('task', 'trace')}, {ranks}"
        schedule = f", {plan['schedule']}" if plan.get("schedule") else ""
        scale = plan.get("time_scale", 1) or 1
        scaled = f", {scale:g} times slower" if scale != 1 else ""
        return f"{what}{schedule} ({self.meta.source}{scaled})"

    def __repr__(self) -> str:
        return f"<Trace {self.title}: {self.events.height} events on {self.meta.num_ranks} ranks>"

    def with_meta(self, **changes: Any) -> Trace:
        """The same events with other metadata."""
        return replace(self, meta=replace(self.meta, **changes))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one Parquet file; an existing file stays whole until the new one is."""
        path = Path(path).resolve()  # through a link, not over it
        metadata = msgspec.json.encode(self.meta).decode()
        try:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
                partial = Path(file.name)
            try:
                self.events.write_parquet(partial, compression="zstd", metadata={_METADATA_KEY: metadata})
                partial.chmod(0o666 & ~_umask())
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        except (OSError, pl.exceptions.PolarsError) as error:  # polars has its own words for a full disk
            raise OSError(f"cannot save the trace to {path}: {error}; give another path or free some space") from error
        return path


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `Trace.save` wrote."""
    path = Path(path)
    if not path.is_file():
        raise TraceError(f"no trace at {path}: give the .parquet file that `labkit run --out` or Trace.save wrote")
    try:
        metadata = pl.read_parquet_metadata(path)
        meta = _decode_meta(metadata[_METADATA_KEY])
        events = pl.read_parquet(path)
    except KeyError:
        raise TraceError(f"{path} is a Parquet file, but not a labkit trace: it has no labkit metadata") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, msgspec.MsgspecError, OSError) as error:
        raise TraceError(f"{path} cannot be read as a labkit trace: {error}") from error
    missing = sorted(set(SCHEMA) - set(events.columns))
    if missing:
        raise TraceError(f"{path} lacks the columns {', '.join(missing)}: it was written by another version")
    try:
        return _usable(events.select(list(SCHEMA)).cast(SCHEMA), meta)
    except pl.exceptions.PolarsError as error:  # such as a time that is not a number
        raise TraceError(f"{path} holds values that no trace has: {error}") from error


def _usable(events: pl.DataFrame, meta: Meta) -> Trace:
    """The trace without events that no run of ours leaves behind, and a note on how many those were."""
    good = pl.all_horizontal(pl.col("rank", "kind").is_not_null(), (pl.col("end_ns") >= pl.col("start_ns")))
    usable = events.filter(good)
    lost = events.height - usable.height
    note = f"{lost:,} of {events.height:,} events without a rank, a start or an end at or after it are left out"
    return Trace(usable, replace(meta, notes=(*meta.notes, note)) if lost else meta)


def _decode_meta(text: str) -> Meta:
    """JSON knows no not-a-number: a diverged run's losses and differences are null in the file."""
    plain = msgspec.json.decode(text)
    plain["losses"] = [math.nan if loss is None else loss for loss in plain.get("losses", ())]
    if plain.get("equality"):
        plain["equality"] = {k: math.nan if v is None else v for k, v in plain["equality"].items()}
    return msgspec.convert(plain, Meta)


def merge(parts: Sequence[Part], meta: Meta) -> Trace:
    """One trace from the parts of all ranks, its clock starting at 0.

    All parts must carry the same clock (one host, or times already corrected).
    """
    tables = [part_table(part, meta.mesh) for part in parts if part.rows]
    events = pl.concat(tables) if tables else pl.DataFrame(schema=SCHEMA)
    origin = events["start_ns"].min() or 0
    events = events.with_columns(pl.col("start_ns") - origin, pl.col("end_ns") - origin)
    events = events.sort("start_ns", "rank", maintain_order=True)
    return Trace(events, replace(meta, dropped_events=sum(part.dropped for part in parts)))


def from_events(events: Sequence[dict[str, Any]], meta: Meta) -> Trace:
    """A trace from plain rows; columns that a row does not give are null. For tests, planners and importers."""
    frame = pl.DataFrame(schema=SCHEMA)
    if events:  # infer from all of them: a column may first come late
        frame = pl.DataFrame(list(events), schema_overrides=SCHEMA, infer_schema_length=None)
    unknown = sorted(set(frame.columns) - set(SCHEMA))
    if unknown:
        raise TraceError(f"unknown columns {', '.join(unknown)}: known are {', '.join(SCHEMA)}")
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in SCHEMA.items() if name not in frame.columns]
    return Trace(frame.with_columns(missing).select(list(SCHEMA)).cast(SCHEMA).sort("start_ns", "rank"), meta)


def part_table(part: Part, mesh: Mesh) -> pl.DataFrame:
    """A part's integer rows as a table with names in place of codes and nulls in place of NONE."""
    rows = np.frombuffer(part.rows, dtype=np.int64).reshape(-1, len(FIELDS))
    frame = pl.DataFrame(rows, schema={name: pl.Int64 for name in FIELDS}, orient="row")
    frame = frame.with_columns(pl.when(pl.all() != NONE).then(pl.all()))
    names = part.names
    columns = {
        "rank": pl.lit(part.rank, dtype=pl.Int32),
        "kind": _decode("kind", [str(kind) for kind in KINDS]),
        "layer": _decode("layer", names.layers),
        "op": _decode("op", names.ops),
        "axis": _decode("group", [mesh.axis_of(group) for group in names.groups]),
        "dtype": _decode("dtype", names.dtypes),
    }
    samples = pl.Series(part.samples, dtype=SCHEMA["samples"])
    shapes = pl.Series([shape for shape, _ in part.values], dtype=SCHEMA["shape"])
    datas = pl.Series([data for _, data in part.values], dtype=pl.Binary)
    columns["group"] = _gather(pl.col("group"), pl.Series(names.groups, dtype=SCHEMA["group"]))
    columns["samples"] = _gather(_extra_of("load"), samples)
    columns["shape"] = _gather(_extra_of("value"), shapes)
    columns["data"] = _gather(_extra_of("value"), datas)
    return frame.select([columns.get(name, pl.col(name)).alias(name).cast(dtype) for name, dtype in SCHEMA.items()])


def _decode(column: str, names: list[str]) -> pl.Expr:
    return _gather(pl.col(column), pl.Series(names, dtype=pl.String))


def _extra_of(kind: str) -> pl.Expr:
    return pl.when(pl.col("kind") == KINDS.index(kind)).then(pl.col("extra"))


def _gather(code: pl.Expr, items: pl.Series) -> pl.Expr:
    """items[code], null where code is null."""
    return pl.lit(items).gather(code.cast(pl.UInt32)) if len(items) else pl.lit(None, dtype=items.dtype)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
