"""labkit schedule, replay: what if? A schedule on a clock, and a captured run under other conditions."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path
from typing import Annotated, Any

import typer

from labkit.cli.common import check_out, errors, flag, read_links, save
from labkit.mesh import AXES


def schedule(
    what: Annotated[str, typer.Argument(help="A schedule's name, or a CSV file with one row of actions per rank.")],
    stages: Annotated[int | None, flag("Pipeline ranks, p (4); read off a file.")] = None,
    microbatches: Annotated[int | None, flag("Microbatches, m (two per rank); read off a file.")] = None,
    virtual: Annotated[int | None, flag("Stages per rank; each takes its share of the durations.")] = None,
    durations: Annotated[
        str, flag("Of a rank's layers on one microbatch: forward F, input half B, weight half W, message comm.")
    ] = "F=1ms,B=1ms,W=1ms",
    out: Annotated[Path | None, flag("Save the schedule as a planned trace to this .parquet file.")] = None,
    as_json: Annotated[bool, flag("Print one JSON object.", "--json")] = False,
) -> None:
    """Check a pipeline schedule, put it on a clock, and say how much of the time is idle."""
    with errors():
        from labkit.replay import preview

        check_out(out)
        order = preview.read_schedule(what, stages, microbatches, virtual)
        seen = preview.preview(order, preview.read_durations(durations, order))
        print(json.dumps(seen.to_dict()) if as_json else seen.to_text())
        if out is not None:
            save(seen.trace(), out, quiet=as_json)


def replay(
    trace: Annotated[Path, typer.Argument(help="The .parquet file of a run.")],
    link: Annotated[
        list[str] | None, flag("Another link: a preset or latency=5us,bandwidth=25GB/s; one axis: pp:pcie4.")
    ] = None,
    cluster: Annotated[str | None, flag("The links of a cluster: a preset or a .json file; --link wins.")] = None,
    slow_rank: Annotated[list[str] | None, flag("Make one rank slower: 2=1.5 takes half as long again.")] = None,
    compute: Annotated[float, flag("Factor on all computation: 0.5 is twice as fast (1).")] = 1.0,
    no_sync: Annotated[bool, flag("Syncs cost nothing.", "--no-sync")] = False,
    infinite_bandwidth: Annotated[bool, flag("Syncs cost their latency only.", "--infinite-bandwidth")] = False,
    device_time: Annotated[str | None, flag("How long work takes: wall (the clock) or cpu (CPU time).")] = None,
    schedule: Annotated[str | None, flag("Another pipeline schedule, by name or as a CSV file.")] = None,
    dp: Annotated[int | None, flag("Other data parallel replicas.")] = None,
    tp: Annotated[int | None, flag("Other tensor parallel ranks.")] = None,
    pp: Annotated[int | None, flag("Other pipeline ranks.")] = None,
    microbatches: Annotated[int | None, flag("Another number of microbatches.")] = None,
    virtual: Annotated[int | None, flag("Other stages per pipeline rank.")] = None,
    out: Annotated[Path | None, flag("Save the new trace to this .parquet file.")] = None,
    as_json: Annotated[bool, flag("Print one JSON object.", "--json")] = False,
) -> None:
    """Replay a run under other conditions, or turn it into another plan, and say what changes."""
    new_plan = {"schedule": schedule, "dp": dp, "tp": tp, "pp": pp, "microbatches": microbatches, "virtual": virtual}
    with errors():
        from labkit.replay import Changes, what_if
        from labkit.trace import load

        check_out(out)
        captured = load(trace)
        gone = {axis for axis in AXES if new_plan[axis] == 1}
        changes = Changes(
            link=(_cluster_links(cluster, captured, gone) if cluster else {})
            | (_by_axis(read_links(link)) if link else {}),
            slow_ranks=_slow_ranks(slow_rank or []),
            compute=compute,
            device_time=device_time or "wall",
            no_sync=no_sync,
            infinite_bandwidth=infinite_bandwidth,
        )
        plan_changes = {name: value for name, value in new_plan.items() if value is not None}
        found = what_if.what_if(captured, changes, plan_changes, device_time)
        print(json.dumps(found.to_dict()) if as_json else found.to_text())
        if out is not None:
            save(found.after, out, quiet=as_json)


def _by_axis(link: Any) -> dict[str, Any]:
    return link if isinstance(link, dict) else dict.fromkeys(AXES, link)


def _cluster_links(name: str, captured: Any, gone: Container[str]) -> dict[str, Any]:
    """The link of every axis that the captured run has and the new plan keeps, as the cluster would place it."""
    from labkit.cluster import as_cluster, group_of

    cluster, mesh = as_cluster(name), captured.meta.mesh
    return {
        axis: cluster.effective_link(axis, group_of(axis, mesh, cluster.gpus_per_node))
        for axis in AXES
        if getattr(mesh, axis) > 1 and axis not in gone
    }


def _slow_ranks(parts: list[str]) -> dict[int, Any]:
    """["2=1.5"] -> {2: 1.5}"""
    try:
        return {int(rank): float(factor) for rank, _, factor in (part.partition("=") for part in parts)}
    except ValueError:
        raise ValueError(f"slow rank {', '.join(parts)!r}: give rank=factor, e.g. --slow-rank 2=1.5") from None
