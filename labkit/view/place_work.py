"""A puzzle: place the forwards and backwards of a pipeline by hand, then have real processes run that very order.

In: how many ranks and microbatches, what a rank can hold, and a callable that runs an order. Out: a `PlaceWorkLab`.
`static/place_work.js` is the board; what may be placed and how long it takes is worked out there, in the page.
"""

import threading
from collections.abc import Callable
from typing import Any

import anywidget
import ipywidgets
import traitlets

from labkit.trace import Trace
from labkit.view.controls import opening_step
from labkit.view.esm import stylesheet, widget_module
from labkit.view.tabs import close_all
from labkit.view.timeline import timeline

RunOrder = Callable[[str], Trace]
"""An order as text -> the trace of its run."""


class PlaceWork(anywidget.AnyWidget):
    """The board. Times are in units of one forward. `order` is what is placed, as `Plan(order=...)` takes it."""

    _esm = widget_module("markup", "place_work_geometry", "place_work")
    _css = stylesheet("player", "place_work")

    task = traitlets.Unicode().tag(sync=True)
    num_ranks = traitlets.Int(3).tag(sync=True)
    num_microbatches = traitlets.Int(4).tag(sync=True)
    max_held = traitlets.Int(3).tag(sync=True)
    forward = traitlets.Float(1).tag(sync=True)
    backward = traitlets.Float(2).tag(sync=True)
    target = traitlets.Float().tag(sync=True)
    order = traitlets.Unicode().tag(sync=True)
    given = traitlets.Unicode().tag(sync=True)
    num_tries = traitlets.Int(0).tag(sync=True)
    is_right = traitlets.Bool(None, allow_none=True).tag(sync=True)
    state = traitlets.Enum(("idle", "running"), "idle").tag(sync=True)
    failure = traitlets.Unicode().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


class PlaceWorkLab(ipywidgets.VBox):
    """The board and, below it, the timeline of the order's real run. `trace` is that run."""

    trace = traitlets.Any(None, allow_none=True)

    def __init__(self, board: PlaceWork, run: RunOrder):
        self.board, self._run, self._results = board, run, ipywidgets.VBox()
        self._thread: threading.Thread | None = None
        super().__init__([board, self._results])
        board.on_msg(self._on_message)

    @property
    def is_right(self) -> bool | None:
        return self.board.is_right

    def start(self) -> None:
        """Run what is placed, unless something is running. A page must not wait for it; `wait` does."""
        if self.board.state == "idle":
            self.board.failure, self.board.state = "", "running"
            self._thread = threading.Thread(target=self._work, args=(self.board.order,), daemon=True)
            self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the run is over."""
        if self._thread:
            self._thread.join(timeout_s)

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        if message.get("do") == "run":
            self.start()

    def _work(self, order: str) -> None:
        try:
            self.trace = self._run(order)
            old, self._results.children = (
                self._results.children,
                (timeline(self.trace, step=opening_step(self.trace)),),
            )
            for widget in old:
                close_all(widget)
        except (ValueError, RuntimeError, OSError) as error:
            self.board.failure = str(error)
        finally:
            self.board.state = "idle"
