"""labkit export: a trace as pictures, as a page, as other tools' files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labkit.cli.analyze import Files, Ranks, open_trace
from labkit.cli.common import errors, flag

if TYPE_CHECKING:
    from labkit.trace import Trace

PLAYERS = ("timeline", "all_reduce", "batch_flow", "matrix_shard", "memory_lanes", "mesh_grid")


def export(
    files: Files,
    out: Annotated[
        Path,
        typer.Option(
            help="What to write: .html (a player, offline), .png, .gif, .mp4; .json or .json.gz (Perfetto), .csv, "
            ".parquet; a name without an ending makes a folder of profiler files.",
            show_default=False,
        ),
    ],
    players: Annotated[
        list[str] | None, flag(f"The player (timeline); several are linked: {', '.join(PLAYERS)}.", "--as")
    ] = None,
    step: Annotated[int | None, flag("Only this training step (all).")] = None,
    at: Annotated[str | None, flag("Moment of a .png, such as 12ms (as the player opens).")] = None,
    theme: Annotated[str, flag("light, dark or auto (auto).")] = "auto",
    seconds: Annotated[float, flag("Length of a .gif or .mp4 (8).")] = 8.0,
    rank: Ranks = None,
) -> None:
    """Write a trace as a page, a picture, or a file for other tools."""
    with errors():
        from labkit.quantity import seconds as as_seconds
        from labkit.view.export import check_export, export

        at_ns = None if at is None else 1e9 * as_seconds(at)
        check_export(out, at_ns=at_ns, theme=theme, seconds=seconds)
        _check_players(players or [], out)
        trace = open_trace(files, rank)
        what: Any = _made(trace, players, step) if players else trace
        print(
            f"saved to {export(what, out, step=None if players else step, at_ns=at_ns, theme=theme, seconds=seconds)}"
        )


def _check_players(names: list[str], out: Path) -> None:
    from labkit.view.export import PICTURES, ending_of

    for name in names:
        if name not in PLAYERS:
            raise ValueError(f"--as {name}: no such player; there are {', '.join(PLAYERS)}")
    if names and ending_of(out) not in PICTURES:
        raise ValueError(f"--as {names[0]} with {out}: a player is exported as {', '.join(PICTURES)}; leave out --as")


def _made(trace: Trace, names: list[str], step: int | None) -> list[Any]:
    """The players of a trace, linked."""
    import labkit
    from labkit.view.export import one_step

    trace = one_step(trace, step)
    made = [getattr(labkit, name)(trace) for name in dict.fromkeys(names)]
    if len(made) > 1:
        labkit.link_players(*made)
    return made
