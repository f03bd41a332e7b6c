"""A place to drop files on: they come in small pieces, bounded in number and size, into a folder of their own.

In: a callable. Out: a `Drop` widget; `static/drop.js` sends the files. What is in them is not looked at here. Pieces
are small because a page's connection to its kernel refuses large messages.
"""

import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from labkit.view.esm import stylesheet, widget_module

MAX_BYTES = 512 << 20
MAX_FILES = 64
PIECE_BYTES = 1 << 20
_LONGEST_NAME = 100

OnFiles = Callable[[list[Path]], None]
"""`on_files(paths)`, called in a thread once all files are there; its ValueError is told on the page."""


class Drop(anywidget.AnyWidget):
    """A drop zone and file button. `state`: idle, receiving, reading."""

    _esm = widget_module("markup", "drop")
    _css = stylesheet("player", "drop")

    hint = traitlets.Unicode().tag(sync=True)
    accept = traitlets.Unicode().tag(sync=True)  # endings, as a file input takes them
    max_bytes = traitlets.Int(MAX_BYTES).tag(sync=True)
    max_files = traitlets.Int(MAX_FILES).tag(sync=True)
    piece_bytes = traitlets.Int(PIECE_BYTES).tag(sync=True)
    state = traitlets.Enum(("idle", "receiving", "reading"), "idle").tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)

    def __init__(self, on_files: OnFiles, *, hint: str, accept: str):
        super().__init__(hint=hint, accept=accept)
        self._on_files = on_files
        self._folder: tempfile.TemporaryDirectory | None = None
        self._paths: list[Path] = []
        self._left: list[int] = []  # bytes still to come of each file
        self._thread: threading.Thread | None = None
        self.on_msg(self._on_message)

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the files were read. For tests; a page must not."""
        if self._thread:
            self._thread.join(timeout_s)

    def _on_message(self, _: Any, message: dict[str, Any], buffers: list[Any]) -> None:
        try:
            if message.get("do") == "begin":
                self._begin(message["files"])
            elif message.get("do") == "piece" and self.state == "receiving":
                self._take(int(message["file"]), bytes(buffers[0]))
        except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
            self._fail(str(error))

    def _begin(self, files: list[dict[str, Any]]) -> None:
        """Refuse what is too much before any of it is sent."""
        if self.state != "idle":
            return
        sizes = [int(one["size"]) for one in files]
        max_files, max_bytes = min(self.max_files, MAX_FILES), min(self.max_bytes, MAX_BYTES)  # a page can set traits
        if not 1 <= len(files) <= max_files:
            raise ValueError(f"{len(files)} files: give 1 to {max_files} at once")
        if min(sizes) < 1:
            raise ValueError("one of the files is empty: was it still being written?")
        if sum(sizes) > max_bytes:
            most = max_bytes >> 20
            raise ValueError(
                f"{sum(sizes) / 2**20:,.0f} MiB together: at most {most} MiB are taken here; "
                f"`labkit import` in a shell reads more"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-drop-")
        self._paths = [self._place(number, str(one["name"])) for number, one in enumerate(files)]
        self._left = sizes
        self.problem, self.state = "", "receiving"
        self.send({"do": "more", "file": 0})

    def _place(self, number: int, name: str) -> Path:
        """A file of the folder; its name keeps letters, digits and a few marks, since it may tell the rank."""
        plain = re.sub(r"[^\w.()\- ]", "_", name.replace("\\", "/").rpartition("/")[2])[-_LONGEST_NAME:].lstrip(".")
        folder = Path(self._folder.name, str(number))
        folder.mkdir()
        return folder / (plain or "file")

    def _take(self, number: int, piece: bytes) -> None:
        """Append a piece; when all are there, read."""
        if len(piece) > min(self.piece_bytes, self._left[number]) or not piece:
            raise ValueError(f"file {number + 1} is not as long as it said: drop it again")
        with self._paths[number].open("ab") as file:
            file.write(piece)
        self._left[number] -= len(piece)
        todo = next((k for k, left in enumerate(self._left) if left), None)
        if todo is not None:
            self.send({"do": "more", "file": todo})
            return
        self.state = "reading"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        folder = self._folder
        try:
            self._on_files(self._paths)
            self.state = "idle"
        except Exception as error:  # whatever a file does to its reader, the page must say so and come back to life
            self._fail(str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}")
        finally:
            folder.cleanup()

    def _fail(self, problem: str) -> None:
        """Say what went wrong, in names that the reader knows."""
        if self._folder is not None:
            problem = re.sub(re.escape(self._folder.name) + r"/\d+/", "", problem)
            self._folder.cleanup()
        self.problem, self.state = problem, "idle"
