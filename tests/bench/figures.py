"""What `make bench` measured, as a table: BENCHMARKS.md for readers, assets/benchmarks.json for programs.

In: `Figure`s, one for each measurement, from the tests of this folder. Out: both files. A part of the bench replaces
only its own rows, so that one slow row can be measured again.
"""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[2]
JSON = ROOT / "assets" / "benchmarks.json"
TABLE = ROOT / "BENCHMARKS.md"


@dataclass(frozen=True)
class Figure:
    """One row. `ratio` is what counts: peer / ours where less is better for ours, else as `what` says."""

    part: str  # the test file, whose rows are replaced together
    what: str
    ours: str
    peer: str  # what a user would take instead, and its value; "-" where there is none
    ratio: str
    spread: str  # least to greatest ratio of the rounds
    goal: str


def ratio_of(pairs: Sequence[tuple[float, float]]) -> tuple[float, str]:
    """Median of first / second over rounds, and its spread in words."""
    ratios = sorted(first / second for first, second in pairs)
    return statistics.median(ratios), f"{ratios[0]:.3g} to {ratios[-1]:.3g} in {len(ratios)} rounds"


def keep(figures: Sequence[Figure]) -> None:
    """Put these rows in the place of the earlier ones of the same parts, in both files."""
    old = json.loads(JSON.read_text(encoding="utf-8"))["figures"] if JSON.exists() else []
    parts = {figure.part for figure in figures}
    rows = [row for row in old if row["part"] not in parts] + [asdict(figure) | machine() for figure in figures]
    rows.sort(key=lambda row: row["part"])
    JSON.write_text(json.dumps({"figures": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    TABLE.write_text(_page(rows), encoding="utf-8")


def machine() -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"date": str(date.today()), "machine": f"{cores} cores, {platform.system()}, load {os.getloadavg()[0]:.1f}"}


def _page(rows: Sequence[dict[str, str]]) -> str:
    head = (
        "# Benchmarks\n\nWritten by `make bench`. Everything is a ratio within one run, ours and the peer in turn, "
        "since machines differ and moods change. Goals that are not met stay in.\n"
    )
    lines = ["| measured | labkit | peer | ratio | spread | goal | when, where |", "|---|---|---|---|---|---|---|"]
    names = ("what", "ours", "peer", "ratio", "spread", "goal")
    lines += [f"| {' | '.join(row[name] for name in names)} | {row['date']}; {row['machine']} |" for row in rows]
    return head + "\n" + "\n".join(lines) + "\n"
