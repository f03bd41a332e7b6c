"""Two forms side by side, one Run for both, and what came of the pair below.

In: two `Lab`s that check their own plans, and callables. Out: a `Pair` widget.
"""

from collections.abc import Mapping
from typing import Any

from labkit.trace import Trace
from labkit.view.controls import Form, Lab, Run, Show
from labkit.view.results import side_by_side
from labkit.view.timeline import timeline


class Pair(Lab):
    """Labs by name, whose forms only hold plans; this one runs them. `trace` is the pair of runs, a tuple."""

    def __init__(self, labs: Mapping[str, Lab], run: Run, show: Show):
        self.labs = dict(labs)
        for lab in self.labs.values():
            lab.form.is_run_here = False
        super().__init__(run, self._plans, Form(values={"both": True}, run_text="Run both"), show)
        self.children = (side_by_side([lab.form for lab in self.labs.values()]), *self.children)
        for lab in self.labs.values():
            lab.form.observe(self._check, ["problem", "plan_text"])

    def values(self) -> dict[str, dict[str, Any]]:
        """What the two forms hold."""
        return {name: dict(lab.form.values) for name, lab in self.labs.items()}

    def _plans(self, _: dict[str, Any]) -> str:
        """Both plans; a ValueError names the one that cannot run."""
        wrong = [name for name, lab in self.labs.items() if lab.form.problem]
        if wrong:
            raise ValueError(f"{' and '.join(wrong)} cannot run: see above")
        return "; ".join(f"{name}: {lab.form.plan_text}" for name, lab in self.labs.items())

    def _show_what_was_recorded(self, trace: Trace | None) -> None:
        """One run alone is no pair: of one that failed, the timeline."""
        if trace is not None and trace.events.height:
            self._results.children = (timeline(trace),)
