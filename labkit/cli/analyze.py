"""labkit analyze, explain, import: numbers, reasons, and other tools' traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labkit.cli.common import check_out, errors, flag, save
from labkit.opening import open_trace

if TYPE_CHECKING:
    from labkit.trace import Trace

Files = Annotated[
    list[Path], typer.Argument(help="A labkit trace, or PyTorch profiler files (one per rank or merged).")
]
Ranks = Annotated[list[int] | None, flag("Rank of each profiler file, in their order (what the files say).", "--rank")]
Json = Annotated[bool, flag("Print one JSON object.", "--json")]


def analyze(files: Files, rank: Ranks = None, as_json: Json = False) -> None:
    """Say where each rank's time went: computing, syncing, idle."""
    with errors():
        trace = open_trace(files, rank)
        found = _analysis(trace)
        print(json.dumps(found) if as_json else _analysis_text(trace, found))


def explain(files: Files, rank: Ranks = None, as_json: Json = False) -> None:
    """Say why each rank stood still, and for how long."""
    with errors():
        from labkit import analysis, explain

        trace = open_trace(files, rank)
        if not as_json:
            print(explain.describe(trace))
            return
        gaps, causes = explain.explain(trace).to_dicts(), explain.summary(trace).to_dicts()
        notes = analysis.all_notes(trace)
        print(json.dumps({"kind": trace.meta.source, "gaps": gaps, "causes": causes, "notes": notes}))


def import_(
    files: Annotated[list[Path], typer.Argument(help="PyTorch profiler files, .json or .json.gz.")],
    out: Annotated[Path, flag("The .parquet file to write.")] = Path("trace.parquet"),
    rank: Ranks = None,
) -> None:
    """Turn PyTorch profiler files into a labkit trace."""
    with errors():
        from labkit import kineto, report

        check_out(out)
        trace = kineto.read(files, ranks=rank)
        print(report.describe(trace))
        save(trace, out)


def _analysis(trace: Trace) -> dict[str, Any]:
    from labkit import analysis

    bubble = analysis.bubble(trace)
    return {
        "kind": trace.meta.source,
        "ranks": analysis.temporal_breakdown(trace).to_dicts(),
        "bubble_fraction": bubble.of_total if bubble else None,
        "bubble_of_ideal": bubble.of_ideal if bubble else None,
        "stragglers": analysis.stragglers(trace).to_dicts(),
        "notes": analysis.all_notes(trace),
    }


_TIMES = ("compute_ns", "non_compute_ns", "exposed_sync_ns", "idle_ns")


def _analysis_text(trace: Trace, found: dict[str, Any]) -> str:
    lines = [trace.title, "  rank       compute   non-compute  exposed sync          idle  sync overlapped"]
    for row in found["ranks"]:
        times = [
            f"{row[name] / 1e6:10.3f} ms" for name in ("compute_ns", "non_compute_ns", "exposed_sync_ns", "idle_ns")
        ]
        overlap = "no sync" if row["overlap_percent"] is None else f"{row['overlap_percent']:.2f} %"
        lines.append(f"  {row['rank']:4} {' '.join(times)} {overlap:>16}")
    if found["bubble_fraction"] is not None:
        lines.append(
            f"  bubble {found['bubble_fraction']:.1%} of total time, {found['bubble_of_ideal']:.1%} of ideal time"
        )
    for row in found["stragglers"]:
        if row["times_last"]:
            waited = f"the first waited {row['skew_ns'] / 1e6:.3f} ms in all"
            last = f"came last to {row['times_last']} of {row['collectives']} {row['axis']} syncs"
            lines.append(f"  rank {row['rank']} {last}: {waited}")
    return "\n".join([*lines, *(f"  note: {note}" for note in found["notes"])])
