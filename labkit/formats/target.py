"""Where an export may be written, and never half a file.

In: a path. Out: the path, or an error with the way out, before any work; a file that is whole or not there.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path of a file that can be written; an older file there will be replaced."""
    path = Path(path)
    folder = path.resolve().parent
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder; give the name of a file in it")
    if path.exists() and not path.is_file():
        raise ValueError(f"cannot write {path}: it is no plain file; give another name")
    if not folder.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {folder}; make it first, or give another path")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"cannot write {path}: the folder {folder} is not writable; give another path")
    return path


def check_folder(path: str | os.PathLike[str]) -> Path:
    """The path of a folder that is new or empty: files of another run in it would be read as ranks of this one."""
    path = Path(path)
    if path.is_dir():
        if any(path.iterdir()):
            raise ValueError(f"the folder {path} is not empty: give a new folder, or empty this one")
        if not os.access(path, os.W_OK):
            raise ValueError(f"the folder {path} is not writable: give another one")
        return path
    return check_file(path)  # what holds for a new file holds for a new folder


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, packed if its name ends in .gz; it takes its place at `path` when all went well."""
    path = path.resolve()  # through a link, not over it
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        partial = Path(file.name)
    try:
        with contextlib.ExitStack() as opened:
            raw = opened.enter_context(partial.open("wb"))
            packed = path.suffix == ".gz"
            yield opened.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0)) if packed else raw
        partial.chmod(0o666 & ~_umask())
        partial.replace(path)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error}; give another path or free some space") from error
    finally:
        partial.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
