"""Rows of predicted and measured, with the day and the machine: in a file, and as Markdown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

KEPT = Path(__file__).parents[2] / "assets" / "own_runs.json"
"""The record that comes with labkit."""


@dataclass(frozen=True)
class Compared:
    """One number that was predicted and then measured."""

    table: str  # a key of TABLES
    case: str
    quantity: str
    predicted: float
    measured: float
    late_ms: float | None = None  # paced only: by how much this machine's real work was late, at most

    @property
    def error(self) -> float:
        """(predicted - measured) / measured; 0 where both are 0, infinite where only something predicted is there."""
        if self.measured:
            return self.predicted / self.measured - 1
        return float("inf") if self.predicted else 0.0


@dataclass(frozen=True)
class Record:
    """What one machine measured on one day."""

    recorded: str  # the day, as 2026-11-30
    machine: str
    num_cores: int
    versions: dict[str, str]
    how: str  # what was done where this machine was busy, in a sentence
    rows: tuple[Compared, ...]

    def of(self, table: str) -> tuple[Compared, ...]:
        return tuple(row for row in self.rows if row.table == table)

    @property
    def provenance(self) -> str:
        """Where and when, in a sentence."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        machine = f"a machine with {self.num_cores} cores ({self.machine}; {versions})"
        return f"Recorded on {self.recorded} on {machine}. {self.how}"

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(asdict(self)), indent=1) + b"\n")

    def markdown(self) -> str:
        """The whole page: where it comes from, a summary, every table."""
        parts = [self.provenance, "", *_summary(self)]
        for name, words in TABLES.items():
            parts += ["", f"### {words.title}", "", words.explained, "", *_rows(self.of(name))]
        return "\n".join([*parts, ""])


@dataclass(frozen=True)
class _Words:
    title: str
    explained: str


TABLES = {
    "replanned": _Words(
        "Turned into another plan, then really run",
        "One captured run teaches the durations; the new plan is predicted, then run. Paced: processes, messages and "
        "gradients are real, and operations last as long as set. Where real work is late, because another program had "
        "the core, what is behind it is late too: that no prediction knows.",
    ),
    "replayed": _Words(
        "Replayed as it was",
        "The events of a run on the event graph again, without any change. This tests the graph: what a rank did by "
        "itself keeps its length. By device time each piece of work takes its CPU time and syncs are free; what it is "
        "compared with is the longest chain of those CPU times in the schedule's order.",
    ),
    "memory": _Words(
        "Most bytes held",
        "Computed from the plan alone, against what the run's events show: measured bytes and the error, of each kind "
        "of the rank that is furthest off.",
    ),
}
"""Tables by name, in the order of the page."""


def load_record(path: str | Path = KEPT) -> Record:
    """The record in a file. Raises ValueError for what is none."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Record)
    except OSError as error:
        raise ValueError(f"no record of own runs at {path}: make one with `labkit own-runs --out {path}`") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is no record of own runs: {error}") from error


def mean_error(rows: tuple[Compared, ...]) -> float:
    """Mean of the errors' sizes."""
    return sum(abs(row.error) for row in rows) / len(rows)


def _summary(record: Record) -> list[str]:
    lines = ["| | rows | mean error | worst |", "|---|--:|--:|--:|"]
    for name, words in TABLES.items():
        rows = record.of(name)
        if rows:
            worst = max(abs(row.error) for row in rows)
            lines.append(f"| {words.title} | {len(rows)} | {mean_error(rows):.1%} | {worst:.1%} |")
    return lines


def _rows(rows: tuple[Compared, ...]) -> list[str]:
    if not rows:
        return ["Not recorded."]
    return _crossed(rows) if len({row.quantity for row in rows}) > 1 else _listed(rows)


def _listed(rows: tuple[Compared, ...]) -> list[str]:
    """A row for each number; how late the machine was stands beside those that it can explain."""
    lines = [f"| {rows[0].quantity} | error | predicted | measured | late by up to |", "|:--|--:|--:|--:|--:|"]
    return lines + [
        f"| {row.case} | {row.error:+.1%} | {row.predicted:,.2f} | {row.measured:,.2f} | {_late(row)} |" for row in rows
    ]


def _late(row: Compared) -> str:
    return "" if row.late_ms is None else f"{row.late_ms:,.1f} ms"


def _crossed(rows: tuple[Compared, ...]) -> list[str]:
    """A row for each case, a column for each quantity: the measured number and the error."""
    quantities = list(dict.fromkeys(row.quantity for row in rows))
    cases: dict[str, dict[str, Compared]] = {}
    for row in rows:
        cases.setdefault(row.case, {})[row.quantity] = row
    lines = [f"| | {' | '.join(quantities)} |", f"|---|{'--:|' * len(quantities)}"]
    return lines + [
        f"| {case} | {' | '.join(_cell(of_case.get(name)) for name in quantities)} |" for case, of_case in cases.items()
    ]


def _cell(row: Compared | None) -> str:
    return "" if row is None else f"{row.measured:,.0f} ({row.error:+.1%})"


def plain(record: Record) -> dict[str, Any]:
    """Plain data for JSON, errors and means included."""
    tables = {
        name: {
            "rows": [asdict(row) | {"error": row.error} for row in record.of(name)],
            "mean_error": mean_error(record.of(name)) if record.of(name) else None,
        }
        for name in TABLES
    }
    return {name: value for name, value in asdict(record).items() if name != "rows"} | {"tables": tables}
