"""The temporary folder of this process's ranks, under a name of ours: what a killed process leaves, the next clears.

multiprocessing keeps the socket of its server in a folder and removes it at exit; a kernel that Jupyter kills has no
exit. Our folder holds a file locked by its process, and the lock ends with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path

_PREFIX, _ALIVE = "ranks-", "alive"  # short: a socket's whole path may have 107 characters
_REMOVED_LAST = -100  # as multiprocessing's own folder, after what uses it


def own_folder() -> None:
    """Have multiprocessing use a folder of ours, if it has none yet; and clear those of processes that are gone."""
    config = multiprocessing.current_process()._config  # where multiprocessing.util.get_temp_dir looks
    if config.get("tempdir") is not None:
        return
    clear()
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    Finalize(None, shutil.rmtree, (folder, True), exitpriority=_REMOVED_LAST)
    new = Path(folder, "new")
    fcntl.flock(
        os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX
    )  # open until the process ends
    new.rename(new.with_name(_ALIVE))  # nobody ever sees it without its lock
    config["tempdir"] = folder


def clear() -> None:
    """Remove this user's folders whose process is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process may clear it at the same time
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink() and _is_dead(folder):
                shutil.rmtree(folder)


def _is_dead(folder: Path) -> bool:
    descriptor = os.open(folder / _ALIVE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
