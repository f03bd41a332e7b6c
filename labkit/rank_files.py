"""What ranks under torchrun left in a folder -> one trace.

In: a folder with a file for each rank, from `labkit.engine.worker` (a plan) or `labkit.record` (a user's own script).
Out: a `Trace`, times on rank 0's clock.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from labkit import __version__, analysis, hosts
from labkit.event import FIELDS, NONE
from labkit.job import Outcome
from labkit.lab import trace_of
from labkit.mesh import Mesh
from labkit.part import Part, RankFile, decode_part
from labkit.plan import Plan
from labkit.trace import Meta, Trace, merge
from labkit.watch import Results

_SPOILED = (
    msgspec.MsgspecError,
    pl.exceptions.PolarsError,
    IndexError,
    OverflowError,
    TypeError,
    statistics.StatisticsError,
)
"""What rows that no recorder wrote can bring about."""

_TIMES = [FIELDS.index("start_ns"), FIELDS.index("end_ns")]


def merge_folder(folder: str | os.PathLike[str]) -> Trace:
    """The trace of a job under torchrun, from the files its ranks left in the folder.

    Raises FileNotFoundError when ranks are missing, ValueError when files cannot be read or are not of one job.
    """
    files = [_read(path) for path in sorted(Path(folder).glob("rank*.labkit"))]
    if not files:
        raise FileNotFoundError(
            f"no rank*.labkit in {folder}: give the folder of labkit.record, or the --out of labkit.engine.worker"
        )
    first = files[0]
    if any((file.plan, file.job, file.script) != (first.plan, first.job, first.script) for file in files):
        raise ValueError(f"{folder} holds files of different jobs: give each job an empty folder")
    plan = Plan.from_dict(first.plan) if first.plan is not None else None
    num_ranks = plan.num_ranks if plan else first.num_ranks
    missing = sorted(set(range(num_ranks)) - {file.rank for file in files})
    if missing:
        raise FileNotFoundError(
            f"{folder} holds {len(files)} of {num_ranks} ranks: rank {', '.join(map(str, missing))} left no file"
        )
    files.sort(key=lambda file: file.rank)
    try:
        trace = _trace_of_plan(plan, files) if plan else _trace_of_script(files)
    except _SPOILED as error:
        raise ValueError(f"the events in {folder} cannot be read: {error}; record them again") from None
    return trace.with_meta(notes=(*trace.meta.notes, *_clock_notes(files)))


def _read(path: Path) -> RankFile:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=RankFile)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is not what a rank left behind: {error}") from None


def _trace_of_plan(plan: Plan, files: Sequence[RankFile]) -> Trace:
    outcomes = [Outcome(tuple(f.layers), f.losses, f.step_seconds, f.first_step_seconds) for f in files]
    return trace_of(plan, Results(list(outcomes), _parts(files)))


def _trace_of_script(files: Sequence[RankFile]) -> Trace:
    first, num_ranks = files[0], files[0].num_ranks
    degrees = _degrees(first.degrees, num_ranks)
    meta = Meta(
        source="measured",
        plan={"task": first.script} | degrees,
        num_ranks=num_ranks,
        layers=tuple(dict.fromkeys(name for file in files for name in file.layers)),
        versions={"labkit": __version__, "torch": first.torch},
    )
    trace = merge(_parts(files), meta)
    notes = list(analysis.notes(trace))
    if num_ranks > 1 and not first.degrees:
        notes.append(
            "all ranks are taken for replicas: name the axes of your mesh by labkit.record(out, dp=.., tp=.., pp=..)"
        )
    return replace(trace, meta=replace(trace.meta, notes=tuple(notes)))


def _degrees(told: dict[str, int], num_ranks: int) -> dict[str, int]:
    """The mesh a script told of; an axis it left out gets the ranks that remain, dp first."""
    mesh = Mesh(**told)
    rest, odd = divmod(num_ranks, mesh.num_ranks)
    if odd or (rest > 1 and "dp" in told):
        said = ", ".join(f"{axis}={size}" for axis, size in told.items())
        raise ValueError(f"labkit.record was told {said}, which is {mesh.num_ranks} ranks, but {num_ranks} ran")
    mesh = mesh if rest == 1 else replace(mesh, dp=rest)
    return {"pp": mesh.pp, "dp": mesh.dp, "tp": mesh.tp}


def _parts(files: Sequence[RankFile]) -> list[Part]:
    """All parts, on rank 0's clock."""
    readings = {file.node: file.clock for file in files if file.clock}
    return [_corrected(decode_part(part), readings.get(file.node, ())) for file in files for part in file.parts]


def _corrected(part: Part, readings: Sequence[hosts.ClockReading]) -> Part:
    if not readings or not part.rows:
        return part
    rows = np.frombuffer(part.rows, dtype=np.int64).reshape(-1, len(FIELDS)).copy()
    times = rows[:, _TIMES]
    rows[:, _TIMES] = np.where(times == NONE, NONE, hosts.corrected(times, readings))
    return msgspec.structs.replace(part, rows=rows.tobytes())


def _clock_notes(files: Sequence[RankFile]) -> list[str]:
    return [hosts.told(file.node, file.clock) for file in files if file.clock]
