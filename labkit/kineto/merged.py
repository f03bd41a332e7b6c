"""A file that holds several ranks: which spans belong to which process.

In: a file's spans. Out: a table for each training process, in order of process id.

A training process is one that runs profiler steps (or, where none does, launches kernels). A GPU's kernels belong to
the process whose launches they match best; ids of different processes may collide, so the best is the one with most
matches in time, and a process takes one GPU before another takes two.
"""

from __future__ import annotations

import polars as pl

from labkit.kineto.words import GPU_CATEGORIES


def processes(spans: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """(process id, spans) of every training process; one process with everything, where there are not several."""
    on_gpu = pl.col("cat").is_in(list(GPU_CATEGORIES)) | pl.col("cat").str.starts_with("gpu_")
    training = spans.filter(pl.col("name").str.starts_with("ProfilerStep")).filter(~on_gpu)["pid"].unique()
    if len(training) < 2:
        return [("", spans)]
    pids = sorted(training, key=lambda pid: (not pid.isdigit(), int(pid) if pid.isdigit() else 0, pid))
    owners = _owners(spans, pids)
    owner = pl.col("pid").replace(owners)
    return [(pid, spans.filter((pl.col("pid") == pid) & ~on_gpu | on_gpu & (owner == pid))) for pid in pids]


def _owners(spans: pl.DataFrame, pids: list[str]) -> dict[str, str]:
    """GPU -> process."""
    gpu = spans.filter(pl.col("cat").is_in(list(GPU_CATEGORIES)))
    launches = spans.filter(pl.col("pid").is_in(pids) & pl.col("correlation").is_not_null())
    launches = launches.join(gpu.select("event"), on="event", how="anti")
    pairs = gpu.select("correlation", gpu="pid", begun="start_ns").join(
        launches.select("correlation", pid="pid", launched="start_ns"), on="correlation"
    )
    votes = pairs.filter(pl.col("launched") <= pl.col("begun")).group_by("gpu", "pid").agg(
        pl.len(), (pl.col("begun") - pl.col("launched")).median().alias("delay_ns")
    )  # fmt: skip
    owners: dict[str, str] = {}
    for row in votes.sort("len", "delay_ns", descending=[True, False]).to_dicts():
        if row["gpu"] not in owners and row["pid"] not in owners.values():
            owners[row["gpu"]] = row["pid"]
    free = [pid for pid in pids if pid not in owners.values()]
    for name in sorted(gpu["pid"].unique()):
        if name not in owners and free:
            owners[name] = free.pop(0)
    return owners
