"""A check: a question about the picture above it, which the reader answers.

In: a question and its answer, taken from a run where it can be. Out: an `Ask` widget; `static/ask.js` shows it and
judges the answer in the page, so that a dead kernel does not matter. `is_right` comes back to Python.
"""

import math
from collections.abc import Mapping

import anywidget
import traitlets

from labkit.view.esm import stylesheet, widget_module


class Ask(anywidget.AnyWidget):
    """One question. `choices`: [text, reply] pairs; none: a number is asked for. `is_right`: None until answered."""

    _esm = widget_module("markup", "ask")
    _css = stylesheet("player", "ask")

    question = traitlets.Unicode().tag(sync=True)
    choices = traitlets.List().tag(sync=True)
    answer = traitlets.Union((traitlets.Unicode(), traitlets.Float())).tag(sync=True)
    within = traitlets.Float(0.0).tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    hint = traitlets.Unicode().tag(sync=True)
    why = traitlets.Unicode().tag(sync=True)
    given = traitlets.Unicode().tag(sync=True)
    num_tries = traitlets.Int(0).tag(sync=True)
    is_right = traitlets.Bool(None, allow_none=True).tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


def ask(
    question: str,
    answer: str | float,
    *,
    choices: Mapping[str, str] | None = None,
    within: float | None = None,
    unit: str = "",
    hint: str = "",
    why: str = "",
) -> Ask:
    """A question with one right answer.

    choices: what to choose from, each with the reply it gets; `answer` is one of them. Without choices `answer` is a
    number, and what lies `within` it (in its own unit; default 2 % of it) is right. hint: offered before an answer;
    why: shown after the right one. Raises ValueError when no answer could ever be right.
    """
    if choices is not None:
        if answer not in choices:
            raise ValueError(f"the answer {answer!r} is none of the choices: {', '.join(map(repr, choices))}")
        return Ask(
            question=question, answer=str(answer), choices=[list(c) for c in choices.items()], hint=hint, why=why
        )
    if isinstance(answer, str) or not math.isfinite(answer):
        raise ValueError(f"the answer {answer!r} is no finite number: give one, or choices= to choose from")
    margin = abs(answer) * 0.02 if within is None else within
    if margin < 0:
        raise ValueError(f"within={within}: give how far a right answer may be off, at least 0")
    return Ask(question=question, answer=float(answer), within=float(margin), unit=unit, hint=hint, why=why)
