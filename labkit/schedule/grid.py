"""Orders as a text grid, rank x time, for prints and for error messages. Strings in, one string out."""

from collections.abc import Mapping, Sequence

from labkit.schedule.order import Schedule

_IDLE = "."
# Columns shown: an error in a long schedule should fit a screen.
_MAX_COLUMNS = 16


def cells(schedule: Schedule, idle: str = _IDLE) -> list[list[str]]:
    """Every rank's actions by step, as far as it gets, when each takes one step and messages none."""
    from labkit.schedule.waves import waves  # which loads numpy

    reached, rows = waves(schedule), []
    for rank, order in enumerate(schedule.orders):
        steps = reached.reached(rank)
        row = [idle] * (steps[-1] if steps else 0)
        for step, action in zip(steps, order, strict=False):
            row[step - 1] = str(action)
        rows.append(row)
    return rows


def schedule_grid(schedule: Schedule, *, start: int = 0, num_columns: int = _MAX_COLUMNS) -> str:
    """The schedule as a grid, every action one step long: one row per rank, a dot where a rank is idle.

    `start` is the first step shown. 1F1B on 2 ranks with 3 microbatches:

        time     0   1   2   3   4   5   6   7
        rank 0  0F0 0F1  .  0B0 0F2 0B1  .  0B2
        rank 1   .  1F0 1B0 1F1 1B1 1F2 1B2  .
    """
    return format_grid(cells(schedule), start=start, num_columns=num_columns)


def format_grid(
    rows: Sequence[Sequence[str]],
    *,
    notes: Mapping[int, str] | None = None,
    column: str = "time",
    start: int = 0,
    num_columns: int = _MAX_COLUMNS,
) -> str:
    """`rows` as a table, one line per rank, with the note of a rank after an arrow. Shows columns from `start` on."""
    notes = notes or {}
    length = max((len(row) for row in rows), default=0)
    shown = range(start, min(length, start + num_columns))
    more = " ..." if shown.stop < length else ""
    width = max([3, *(len(cell) for row in rows for cell in row[start : shown.stop])])
    label = max(len(column), len(f"rank {len(rows) - 1}"))

    def line(head: str, cells: Sequence[str], tail: str) -> str:
        return " ".join([f"{head:<{label}} ", *(f"{cell:^{width}}" for cell in cells)]).rstrip() + tail

    lines = [line(column, [str(index) for index in shown], "")]
    for rank, row in enumerate(rows):
        cells = [row[index] if index < len(row) else _IDLE for index in shown]
        lines.append(line(f"rank {rank}", cells, more + (f"   <-- {notes[rank]}" if rank in notes else "")))
    return "\n".join(lines)


def progress_grid(schedule: Schedule, notes: Mapping[int, str]) -> str:
    """The grid of a schedule that gets stuck, up to where it stands, with a note for each rank that waits."""
    rows = cells(schedule)
    length = max(len(row) for row in rows)
    return format_grid(rows, notes=notes, start=max(0, length - _MAX_COLUMNS))
