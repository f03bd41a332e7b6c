"""What `make bench` measured, as a table: BENCHMARKS.md for readers, assets/benchmarks.json for programs.

In: `Figure`s, one for each measurement, from the tests. Out: both files, the plot of growth, and the headline rows in
the README. A test replaces only its own rows, as soon as it is over, so that one slow row can be measured again and a
bench that is cut short keeps what it has. Rows of tests that are no more go.
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
JSON, PLOT = ROOT / "assets" / "benchmarks.json", ROOT / "assets" / "growth.svg"
TABLE, README = ROOT / "BENCHMARKS.md", ROOT / "README.md"
MARKS = ("<!-- benchmarks: written by make bench -->", "<!-- /benchmarks -->")

PARTS = {
    "start": "From the call to training",
    "recording": "What recording costs",
    "record_overhead": "What `labkit.record` costs a script",
    "throughput": "Training throughput",
    "import": "Profiler files",
    "load": "Opening a large trace",
    "computing": "Schedules, replay, prediction",
    "speed": "Players in the browser",
    "open": "Opening labkit",
    "growth": "Growth",
}
"""The tests' files in the order of the page, and what they measure."""

HEADLINES = (
    "DDP, 4 ranks: warm call to first optimizer step",
    "DDP, 4 ranks, cold: new process to the trace in hand",
    "DDP: private memory of a rank",
    "PP, step of 10 ms: recording on / off",
    "DDP: bytes of the trace, a step",
    "import and breakdown",
    "the event graph of a trace",
    "player, 1,000,000 events: frames a second",
    "`import labkit`",
)
"""How the rows begin that the README shows."""


@dataclass(frozen=True)
class Figure:
    """One row. `ratio` is what counts: peer / ours where less is better for ours, else as `what` says."""

    part: str  # the test's file, "::", and the test, whose rows are replaced together
    what: str
    ours: str
    peer: str  # what a user would take instead, and its value; "-" where there is none
    ratio: str
    spread: str  # least to greatest ratio of the rounds
    goal: str
    points: tuple[tuple[float, float], ...] = ()  # of growth: (size, seconds)


def ratio_of(pairs: Sequence[tuple[float, float]]) -> tuple[float, str]:
    """Median of first / second over rounds, and its spread in words."""
    ratios = sorted(first / second for first, second in pairs)
    return statistics.median(ratios), f"{ratios[0]:.3g} to {ratios[-1]:.3g} in {len(ratios)} rounds"


def spread_of(values: Sequence[float], unit: str = "s") -> str:
    """Least and greatest of what the rounds gave."""
    return f"{min(values):.3g} to {max(values):.3g} {unit} in {len(values)} rounds"


def keep(figures: Sequence[Figure]) -> None:
    """Put these rows in the place of the earlier ones of the same tests, and write all files anew."""
    rows = merged(kept_rows(), [_row(figure) | machine() for figure in figures])
    JSON.write_text(json.dumps({"figures": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    TABLE.write_text(page(rows), encoding="utf-8")
    README.write_text(with_headlines(README.read_text(encoding="utf-8"), rows), encoding="utf-8")
    if any(row.get("points") for row in rows):
        from growth import plot

        PLOT.write_text(plot({row["what"]: row["points"] for row in rows if row.get("points")}), encoding="utf-8")


def kept_rows() -> list[dict]:
    return json.loads(JSON.read_text(encoding="utf-8"))["figures"] if JSON.exists() else []


def merged(old: Sequence[dict], new: Sequence[dict]) -> list[dict]:
    """New rows in the place of those of the same test, others as they were, by file in the order of `PARTS`."""
    by_test: dict[str, list[dict]] = {}
    for row in old:
        by_test.setdefault(row["part"], []).append(row)
    by_test |= {part: [row for row in new if row["part"] == part] for part in dict.fromkeys(row["part"] for row in new)}
    tests = sorted(filter(_is_there, by_test), key=lambda part: [*PARTS].index(_file_of(part)))
    return [row for part in tests for row in by_test[part]]


def _file_of(part: str) -> str:
    return part.partition("::")[0]


def _is_there(part: str) -> bool:
    """Whether the test that gave these rows still exists."""
    file, _, test = part.partition("::")
    paths = [ROOT / "tests" / folder / f"test_{file}.py" for folder in ("bench", "browser")]
    name = f"def {test.partition('[')[0]}("
    return file in PARTS and any(path.exists() and name in path.read_text(encoding="utf-8") for path in paths)


def _row(figure: Figure) -> dict:
    row = asdict(figure)
    return row if figure.points else {name: value for name, value in row.items() if name != "points"}


def machine() -> dict[str, str]:
    """When and where: a load beside the number of cores or above it means that others worked too."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"date": str(date.today()), "machine": f"{cores} cores, {platform.system()}, load {os.getloadavg()[0]:.1f}"}


def page(rows: Sequence[dict]) -> str:
    """BENCHMARKS.md: a table for every part."""
    text = (
        "# Benchmarks\n\nWritten by `make bench`. Everything is a ratio within one run, ours and the peer in turn, "
        "since machines differ and moods change. Goals that are not met stay in. The load is the machine's, the "
        "measurement's own processes counted.\n"
    )
    for file, title in PARTS.items():
        own = [row for row in rows if _file_of(row["part"]) == file]
        if own:
            text += f"\n## {title}\n\n{_table(own)}"
        if own and file == "growth":
            text += "\n![Time against size](assets/growth.svg)\n"
    return text


def _table(rows: Sequence[dict]) -> str:
    lines = ["| measured | labkit | peer | ratio | spread | goal | when, where |", "|---|---|---|---|---|---|---|"]
    names = ("what", "ours", "peer", "ratio", "spread", "goal")
    lines += [f"| {' | '.join(row[name] for name in names)} | {row['date']}; {row['machine']} |" for row in rows]
    return "\n".join(lines) + "\n"


def with_headlines(readme: str, rows: Sequence[dict]) -> str:
    """The README with the headline rows between its marks."""
    before, mark, rest = readme.partition(MARKS[0])
    if not mark or MARKS[1] not in rest:
        raise ValueError(f"{README.name} lacks the lines {MARKS[0]!r} and {MARKS[1]!r}, between which the rows go")
    chosen = [next((row for row in rows if row["what"].startswith(start)), None) for start in HEADLINES]
    lines = ["| measured | labkit | peer | ratio | goal |", "|---|---|---|---|---|"]
    names = ("what", "ours", "peer", "ratio", "goal")
    lines += [f"| {' | '.join(row[name] for name in names)} |" for row in chosen if row]
    return f"{before}{MARKS[0]}\n" + "\n".join(lines) + f"\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"
