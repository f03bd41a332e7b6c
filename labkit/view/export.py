"""Export: a trace or a player as a file that others can open.

In: a `Trace`, a player, or several players. Out: a file, by its name's ending; a name without one makes a folder.

    .html            the player itself, offline, without a kernel     players, or a trace as its timeline
    .png .gif .mp4   what it shows at one moment, or from start to end
    .json .json.gz   for Perfetto and chrome://tracing                 traces
    .csv .parquet    the events
    a folder         a PyTorch profiler file for each rank
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from labkit import formats
from labkit.event import Kind
from labkit.trace import Trace
from labkit.view.export_frames import Moment, check_browser, take_pictures
from labkit.view.export_movie import check_gif, check_mp4, write_gif, write_mp4
from labkit.view.export_page import check_page_size, page_of
from labkit.view.player import Player
from labkit.view.timeline import timeline

What = Trace | Player | Sequence[Player]
Theme = Literal["auto", "light", "dark"]

THEMES = get_args(Theme)
MOVIES = (".gif", ".mp4")
PICTURES = (".html", ".png", *MOVIES)
TABLES = (".json", ".json.gz", ".csv", ".parquet")

FRAMES_PER_SECOND = 12
MAX_FRAMES = 600
_WIDTHS = {".png": (1100, 2), ".gif": (900, 1), ".mp4": (1100, 1.5)}
"""CSS pixels across, and image pixels for each."""


def export(
    what: What,
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    at_ns: float | None = None,
    theme: Theme = "auto",
    seconds: float = 8.0,
) -> Path:
    """Write a trace or players to `path`, and give the path; its ending says as what (see the module).

    `step`: only that training step of a trace. `at_ns`: the moment of a .png, in the trace's time; default: as the
    player opens. `seconds`: how long a .gif or .mp4 runs. `theme`: of pages and pictures; "auto" follows the reader's
    system in a page and is light in pictures.

    >>> labkit.export(trace, "run.html")
    >>> labkit.export(labkit.mesh_grid(trace), "mesh.gif")
    >>> labkit.export(trace, "run.json.gz")  # for Perfetto
    """
    check_export(path, at_ns=at_ns, theme=theme, seconds=seconds)
    ending, path = ending_of(path), Path(path)
    if ending in PICTURES:
        return _export_players(_players(what, step), path, ending, at_ns, theme, seconds)
    if not isinstance(what, Trace):
        as_what = f"a {ending} holds" if ending else "profiler files hold"
        raise ValueError(f"{as_what} a trace's events: give the trace; a player is exported as {', '.join(PICTURES)}")
    return _export_trace(one_step(what, step), path, ending)


def check_export(
    path: str | os.PathLike[str], *, at_ns: float | None = None, theme: Theme = "auto", seconds: float = 8.0
) -> None:
    """Refuse what `export` could not write here, before any work."""
    ending = ending_of(path)
    if ending:
        formats.check_file(path)
    else:
        formats.check_folder(path)
    if theme not in THEMES:
        raise ValueError(f"theme {theme!r}: known are {', '.join(THEMES)}")
    if at_ns is not None and ending != ".png":
        raise ValueError(f"at_ns is the moment of a .png, and {path} is none: leave it out, or name a .png")
    if ending in MOVIES and not 2 <= round(seconds * FRAMES_PER_SECOND) <= MAX_FRAMES:
        longest = MAX_FRAMES / FRAMES_PER_SECOND
        raise ValueError(f"seconds={seconds:g} for {path}: give more than 0 and at most {longest:g}")
    _check_means(ending)


def ending_of(path: str | os.PathLike[str]) -> str:
    """The ending that says as what to export; "" for a folder."""
    name = Path(path).name.lower()
    known = next((ending for ending in (*PICTURES, *TABLES) if name.endswith(ending)), None)
    if known is not None and not str(path).endswith(("/", os.sep)):
        return known
    if Path(path).suffix and not str(path).endswith(("/", os.sep)) and not Path(path).is_dir():
        raise ValueError(
            f"{path}: {Path(path).suffix!r} is no ending that can be exported: {', '.join((*PICTURES, *TABLES))}; a "
            "name without an ending makes a folder of profiler files"
        )
    return ""


def one_step(trace: Trace, step: int | None = None) -> Trace:
    """The trace with only the events of one training step, and a note that says so; as it is for None."""
    if trace.events.is_empty():
        raise ValueError(f"{trace!r} holds no events: there is nothing to export; export a run that recorded some")
    if step is None:
        return trace
    known = trace.events["step"].drop_nulls().unique().sort()
    if step not in known:
        has = f"steps {known.min()} to {known.max()}" if len(known) else "no steps"
        raise ValueError(f"step {step} is not in this trace: it has {has}")
    note = f"Only step {step} of steps {known.min()} to {known.max()} is in this file."
    return Trace(trace.events.filter(pl.col("step") == step), trace.meta).with_meta(notes=(*trace.meta.notes, note))


# ---- traces


def _with_spans(trace: Trace) -> Trace:
    if (trace.events["kind"] == str(Kind.VALUE)).all():
        raise ValueError(f"{trace!r} holds values, but no spans: export .csv or .parquet, or matrix_shard(trace)")
    return trace


def _export_trace(trace: Trace, path: Path, ending: str) -> Path:
    if ending not in (".csv", ".parquet"):
        trace = _with_spans(trace)
    if not ending:
        formats.write_profiler_folder(trace, path)
        return path
    if ending == ".parquet":
        trace.save(path)
        return path
    return formats.write_csv(trace, path) if ending == ".csv" else formats.write_perfetto(trace, path)


# ---- players


def _check_means(ending: str) -> None:
    """Refuse what this machine has no means for."""
    if ending in (".png", *MOVIES):
        check_browser()
    if ending == ".gif":
        check_gif()
    if ending == ".mp4":
        check_mp4()


def _players(what: What, step: int | None) -> list[Player]:
    if isinstance(what, Trace):
        return [timeline(_with_spans(one_step(what, step)))]
    if step is not None:
        raise ValueError(f"step={step} cuts a trace: give the trace, or make the player of that step")
    players = list(what) if isinstance(what, list | tuple) else [what]
    if not players:
        raise ValueError("no players given: give one, or several for one page")
    for player in players:
        if not isinstance(player, Player):
            raise ValueError(f"{type(player).__name__} cannot be exported: give a trace or players, as timeline(trace)")
        if missing := getattr(player, "missing", ""):
            raise ValueError(f"nothing to export. {missing}")
    return players


def _export_players(
    players: list[Player], path: Path, ending: str, at_ns: float | None, theme: Theme, seconds: float
) -> Path:
    page = page_of(players, theme=theme)
    check_page_size(page)
    if ending == ".html":
        return _write(page.encode(), path)
    moments = _moments(seconds) if ending in MOVIES else [Moment(ns=at_ns)]
    width, scale = _WIDTHS[ending]
    frames = take_pictures(page, moments, width=width, scale=scale, theme="dark" if theme == "dark" else "light")
    if ending == ".png":
        return _write(frames[0], path)
    write_movie = write_gif if ending == ".gif" else write_mp4
    return write_movie(frames, path, frames_per_second=FRAMES_PER_SECOND)


def _moments(seconds: float) -> list[Moment]:
    """Evenly from start to end."""
    count = round(seconds * FRAMES_PER_SECOND)
    return [Moment(share=k / (count - 1)) for k in range(count)]


def _write(data: bytes, path: Path) -> Path:
    with formats.whole_file(path) as file:
        file.write(data)
    return path
