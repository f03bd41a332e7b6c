"""What all commands share: one readable line for an error, and never losing a trace.

Exit code 2: bad input; 1: the work failed; 130: interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer


def flag(help: str, *names: str) -> Any:
    """An option whose default the help text tells."""
    return typer.Option(*names, help=help, show_default=False)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Errors as one readable message instead of a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; all ranks were stopped", file=sys.stderr)
        raise typer.Exit(130) from None
    except (ValueError, FileNotFoundError) as error:
        print(f"labkit: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except (RuntimeError, OSError) as error:
        print(f"labkit: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


def check_out(out: Path | None) -> None:
    """Refuse a path that cannot be written, before the work."""
    if out is None:
        return
    folder = out.resolve().parent
    if (out.exists() and not out.is_file()) or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"cannot write {out}: give a file name in a folder that exists and is writable")


def save(trace: Any, out: Path, *, quiet: bool = False) -> None:
    """Save a trace; where that fails, save it elsewhere and say where."""
    try:
        trace.save(out)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="labkit-")) / "trace.parquet"
        try:
            trace.save(elsewhere)
        except OSError:
            elsewhere.parent.rmdir()
            raise error from None
        raise OSError(f"{error}. The trace is not lost: it is in {elsewhere}") from error
    if not quiet:
        print(f"saved to {out}")


def read_links(parts: list[str]) -> str | dict[str, str]:
    """One link for all axes, or pp:pcie4 for one axis each."""
    pairs = [part.partition(":") for part in parts]
    if len(parts) == 1 and not pairs[0][1]:
        return parts[0]
    odd = [part for part, (_, colon, _) in zip(parts, pairs, strict=True) if not colon]
    if odd:
        raise ValueError(f"link {odd[0]!r}: with several links name the axis of each, e.g. --link dp:eth10")
    return {axis: spec for axis, _, spec in pairs}
