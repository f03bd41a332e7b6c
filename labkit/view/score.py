"""How a reader did: which checks are answered, in how many tries, and a line to share.

In: questions and boards with `is_right` and `num_tries`. Out: a `Score` widget that follows them.
"""

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from labkit.view.esm import stylesheet, widget_module


class Score(anywidget.AnyWidget):
    """Rows of (name, state, tries); `share` is one line of text."""

    _esm = widget_module("markup", "score")
    _css = stylesheet("player", "score")

    rows = traitlets.List().tag(sync=True)
    share = traitlets.Unicode().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


def score(**checks: Any) -> Score:
    """A score over checks by name: `score(schedule=board, straggler=question)`."""
    watched = {name.replace("_", " "): getattr(check, "board", check) for name, check in checks.items()}
    made = Score()

    def count(_: object = None) -> None:
        made.rows = [[name, _state(check), check.num_tries] for name, check in watched.items()]
        made.share = share_line(watched)

    for check in watched.values():
        check.observe(count, ["is_right", "num_tries"])
    count()
    return made


def share_line(checks: Mapping[str, Any]) -> str:
    """ "labkit puzzles: 2 of 3 solved in 5 tries (schedule 3, straggler 2)"."""
    solved = {name: check.num_tries for name, check in checks.items() if check.is_right}
    told = ", ".join(f"{name} {tries}" for name, tries in solved.items())
    tries = sum(check.num_tries for check in checks.values())
    word = "try" if tries == 1 else "tries"
    return f"labkit puzzles: {len(solved)} of {len(checks)} solved in {tries} {word}" + (f" ({told})" if told else "")


def _state(check: Any) -> str:
    return {None: "open", True: "right", False: "wrong"}[check.is_right]
