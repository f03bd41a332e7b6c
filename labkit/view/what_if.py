"""What if: sliders for a run's conditions, answered at once from the run that was recorded.

In: fields, and a callable that answers. Out: a `WhatIf` widget. Nothing is run; a timeline of the answer is made only
when its tab is open.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import ipywidgets

from labkit.trace import Trace
from labkit.view.controls import Form, opening_step
from labkit.view.fields import Field, Group, start_values
from labkit.view.report import Report
from labkit.view.tabs import Tabs, close_all
from labkit.view.timeline import timeline

FACTORS = tuple((factor, f"{factor:g} ×") for factor in (0.25, 0.5, 0.75, 1, 1.5, 2, 4))
"""Factors on time: 0.5 is twice as fast."""


@dataclass(frozen=True)
class Answer:
    """What became of the run: its trace and, as (name, words), how it differs from before."""

    trace: Trace
    facts: list[tuple[str, str]]


Ask = Callable[[dict[str, Any]], Answer]
"""Values of the sliders -> the answer, or a ValueError that says why there is none."""


class WhatIf(ipywidgets.VBox):
    """Sliders, and the answer to how they stand, in numbers and as a timeline."""

    def __init__(self, fields: tuple[Field, ...], ask: Ask):
        groups = (Group("What if …", fields),)
        self.form = Form(groups=[asdict(one) for one in groups], values=start_values(groups), is_run_here=False)
        self.report = Report()
        self._ask, self._answer, self._drawn = ask, None, None
        self._picture = ipywidgets.VBox()
        self._tabs = Tabs(
            {"In numbers": lambda: self.report, "As a timeline": lambda: self._picture}, label="The answer"
        )
        super().__init__([self.form, self._tabs])
        self.form.observe(self.answer, "values")
        self._tabs.bar.observe(self._draw, "chosen")
        self.answer()

    def answer(self, _: object = None) -> None:
        """Ask again, as the sliders stand."""
        try:
            self._answer = self._ask(dict(self.form.values))
        except ValueError as error:
            self._answer, self.form.problem = None, str(error)
            return
        self.form.problem, self.report.facts = "", self._answer.facts
        self._draw()

    def _draw(self, _: object = None) -> None:
        """The timeline, where its tab is open and it is not that of this answer yet."""
        if self._tabs.bar.chosen != 1 or self._answer is None or self._drawn is self._answer:
            return
        self._drawn, old = self._answer, self._picture.children
        self._picture.children = (timeline(self._answer.trace, step=opening_step(self._answer.trace)),)
        for widget in old:
            close_all(widget)


def condition_fields(num_ranks: int, links: list[str], has_syncs: bool) -> tuple[Field, ...]:
    """Sliders for the conditions of a run: computation, the links, one slow rank."""
    ranks = (("", "none"), *((str(rank), f"rank {rank}") for rank in range(num_ranks)))
    known = (("", "as it was"), *((link, link) for link in links))
    of_syncs = (
        Field("link", "Link", "choice", "", "between all ranks", known),
        Field("free_syncs", "Syncs cost nothing", "switch", False, "ranks still wait for each other"),
    )
    return (
        Field("compute", "All computation takes", "slider", 1, "0.5 ×: twice as fast", FACTORS),
        *(of_syncs[:1] if has_syncs else ()),
        Field("slow_rank", "A slow rank", "choice", "", "one device slower than the others", ranks),
        Field("slow_factor", "The slow rank takes", "slider", 1.5, "as long as it did", _SLOWER, needs="slow_rank"),
        *(of_syncs[1:] if has_syncs else ()),
    )


_SLOWER = tuple((factor, f"{factor:g} ×") for factor in (1.1, 1.25, 1.5, 2, 3))
