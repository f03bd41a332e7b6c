"""A small table of words: what stands beside what.

In: column names and rows of words. Out: a `Table` widget; `static/table.js` lays it out. Markup in words stays text.
"""

from collections.abc import Sequence

import anywidget
import traitlets

from labkit.view.esm import stylesheet, widget_module


class Table(anywidget.AnyWidget):
    """Rows under named columns; the first word of a row names it."""

    _esm = widget_module("markup", "table")
    _css = stylesheet("player", "table")

    heading = traitlets.Unicode().tag(sync=True)
    sentences = traitlets.List(traitlets.Unicode()).tag(sync=True)  # what the table comes to, in words
    columns = traitlets.List(traitlets.Unicode()).tag(sync=True)
    rows = traitlets.List().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


def table(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]], sentences: Sequence[str] = ()) -> Table:
    """A table whose every row has as many words as there are columns."""
    wrong = next((row for row in rows if len(row) != len(columns)), None)
    if wrong is not None:
        raise ValueError(f"the row {list(wrong)} has {len(wrong)} words, the table {len(columns)} columns")
    return Table(heading=heading, columns=list(columns), rows=[list(row) for row in rows], sentences=list(sentences))
