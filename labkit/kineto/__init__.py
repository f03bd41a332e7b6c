"""PyTorch profiler (Kineto) files as a Trace.

In: .json or .json.gz files, one per rank or merged, from NCCL, RCCL, gloo or CPU-only runs. Out: a `Trace` with source
"imported", whose `meta.notes` name every repair. Nothing from a file is evaluated.

    source      a file's bytes, piece by piece, sizes bounded
    events      bytes -> some events at a time, cut-off files too      (cut: where the last one ends)
    table       events -> spans in whole ns
    file        all three: a file's spans
    merged      spans of several processes in one file -> one table each
    lanes       a process -> kernels, syncs, steps, modules            (collective, words: what names mean)
    ranks       which rank it is
    clock       how far the ranks' clocks are apart
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from labkit.kineto.clock import shifts
from labkit.kineto.collective import Groups
from labkit.kineto.file import read_file
from labkit.kineto.lanes import lanes
from labkit.kineto.merged import processes
from labkit.kineto.ranks import Claim, claim_of, settle
from labkit.trace import SCHEMA, Meta, Trace, TraceError

__all__ = ["read"]

Path = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class _Part:
    """One process: what it says of itself, its rows, the zero of its clock in ns."""

    claim: Claim
    rows: pl.DataFrame
    base_ns: int
    world_size: int | None
    notes: tuple[str, ...]


def read(paths: Path | Iterable[Path], ranks: Sequence[int] | None = None) -> Trace:
    """The trace of one or more profiler files. `ranks`: one for each file, where the files do not say or are wrong.

    Times start at 0, at a whole us. `step` is the profiler's number of the step. What was missing or repaired is in
    `meta.notes`; what cannot be read at all raises TraceError with the file's name.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not paths:
        raise TraceError("no profiler file given: give .json or .json.gz files, one per rank or a merged one")
    parts = [part for path in paths for part in _parts(path)]
    numbers, notes = settle([part.claim for part in parts], ranks)
    notes = [note for part in parts for note in part.notes] + notes + _outside_job(parts, numbers, ranks is not None)
    rows, more = _on_one_clock(parts, numbers)
    sizes = {part.world_size for part in parts if part.world_size}
    return Trace(rows, _meta(numbers, [*notes, *more, *_coverage(numbers, sizes)]))


def _parts(path: Path) -> list[_Part]:
    """The processes of one file."""
    file = read_file(path)
    table, notes = file.spans, []
    if table.is_empty():
        raise TraceError(f"{path} holds no spans (of {file.num_events:,} events): profile at least one whole step")
    groups, several = Groups.of(file.distributed), processes(table)
    parts = []
    for pid, of_process in several:
        made = lanes(of_process, file.args, groups)
        claim = claim_of(file) if len(several) == 1 else Claim(f"{file.path.name}, process {pid}", None)
        said = tuple(f"{claim.name}: {note}" for note in made.notes)
        parts.append(_Part(claim, made.rows, file.base_ns, groups.world_size, said))
    if len(several) > 1:
        notes.append(f"{file.path.name}: {len(several)} processes in one file, in the order of their ids")
    first = parts[0]
    parts[0] = _Part(first.claim, first.rows, first.base_ns, first.world_size, (*file.notes, *notes, *first.notes))
    return parts


def _on_one_clock(parts: list[_Part], numbers: list[int]) -> tuple[pl.DataFrame, list[str]]:
    """All rows in trace columns, from 0, clocks corrected."""
    base_ns = min(part.base_ns for part in parts)
    tables = [
        part.rows.with_columns(
            pl.col("start_ns", "end_ns") + (part.base_ns - base_ns), pl.lit(rank, dtype=pl.Int32).alias("rank")
        )
        for part, rank in zip(parts, numbers, strict=True)
    ]
    rows = pl.concat(tables)
    if rows.is_empty():
        raise TraceError("nothing to show in these files: no kernels, no operators, no collectives, no steps")
    add, notes = shifts(rows)
    if add:
        shift = pl.col("rank").replace_strict(add, default=0, return_dtype=pl.Int64)
        rows = rows.with_columns(pl.col("start_ns") + shift, pl.col("end_ns") + shift)
    origin_ns = rows["start_ns"].min() // 1000 * 1000
    rows = rows.with_columns(pl.col("start_ns", "end_ns") - origin_ns)
    absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in SCHEMA.items() if name not in rows.columns]
    return rows.with_columns(absent).select(list(SCHEMA)).cast(SCHEMA).sort("start_ns", "rank"), notes


def _meta(numbers: list[int], notes: list[str]) -> Meta:
    return Meta(source="imported", num_ranks=len(numbers), clock="profiler", notes=tuple(dict.fromkeys(notes)))


def _outside_job(parts: list[_Part], numbers: list[int], are_given: bool) -> list[str]:
    """Notes on ranks that the file's job cannot have; one that was given raises TraceError."""
    notes = []
    for part, rank in zip(parts, numbers, strict=True):
        if part.world_size is None or rank < part.world_size:
            continue
        said = f"{part.claim.name}: rank {rank}, but its job has {part.world_size} ranks"
        if are_given:
            raise TraceError(f"{said}: give one from 0 to {part.world_size - 1}")
        notes.append(said)
    return notes


def _coverage(numbers: list[int], sizes: set[int]) -> list[str]:
    """What of the job is not there, and files that cannot be of one job."""
    notes = [f"files of jobs of different sizes: {', '.join(map(str, sorted(sizes)))} ranks"] if len(sizes) > 1 else []
    size = max(sizes, default=len(numbers))
    if len(numbers) < size:
        here = ", ".join(map(str, sorted(numbers)))
        notes.append(f"rank {here} of {size} ranks; waiting for the others cannot be told from the syncs themselves")
    return notes
