"""Tabs whose pages are made when they are first opened, so that a page with many pictures opens at once.

In: names, and a callable for each that makes its page. Out: a `Tabs` widget; `static/tabs.js` draws the bar.
"""

from collections.abc import Callable, Mapping

import anywidget
import ipywidgets
import traitlets

from labkit.view.esm import stylesheet, widget_module

Page = Callable[[], ipywidgets.Widget]


class TabBar(anywidget.AnyWidget):
    """Names, of which one is chosen: by pointer, or with the arrow keys."""

    _esm = widget_module("markup", "tabs")
    _css = stylesheet("player", "tabs")

    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    chosen = traitlets.Int(0).tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)  # what a screen reader calls the row
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


class Note(anywidget.AnyWidget):
    """A sentence in place of a picture. Markup in it stays text."""

    _esm = widget_module("markup", "note")
    _css = stylesheet("player", "tabs")

    text = traitlets.Unicode().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)


class Tabs(ipywidgets.VBox):
    """A bar of tabs and, below it, the page of the chosen one. Pages opened before stay as they were left."""

    def __init__(self, pages: Mapping[str, Page], *, label: str, chosen: str | None = None):
        self._makers = dict(pages)
        self._made: dict[str, ipywidgets.Widget] = {}
        names = list(pages)
        self.bar = TabBar(names=names, label=label, chosen=names.index(chosen) if chosen else 0)
        super().__init__([self.bar])
        self.bar.observe(self._show, "chosen")
        self._show()

    def choose(self, name: str) -> ipywidgets.Widget:
        """The page of that name, shown."""
        self.bar.chosen = self.bar.names.index(name)
        return self._made[name]

    def _show(self, _: object = None) -> None:
        name = self.bar.names[self.bar.chosen]
        if name not in self._made:
            self._made[name] = self._make(name)
            self.children = (self.bar, *self._made.values())
        for other, page in self._made.items():
            page.layout.display = None if other == name else "none"

    def _make(self, name: str) -> ipywidgets.Widget:
        """The page, or why it cannot be made: one picture that fails must not take the others along."""
        try:
            return self._makers[name]()
        except (ValueError, RuntimeError, KeyError, OSError) as error:
            return Note(text=f"{name}: {error}")


def close_all(widget: ipywidgets.Widget) -> None:
    """Close a widget and those in it; a box alone closes only itself."""
    for child in getattr(widget, "children", ()):
        close_all(child)
    widget.close()
