"""One ES module out of several files, without a bundler.

In: names of modules in `static/`. Out: the text of one module (`join_modules`), and what anywidget gets of it
(`widget_module`), which takes exactly one.

The files are ordinary ES modules, so node tests and editors read them as they are. Joining them needs only this: a
module is put after those it imports; imports between them are dropped (all names now live in one scope), and so is the
word `export`, except in front of the default export of the last file. What it asks of the files: an import or export
stands at the start of a line, nothing is renamed while imported, and no two files use the same top-level name (a test
checks that).
"""

import json
import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).with_name("static")

_IMPORT = re.compile(r'^import\s[^;]*?from\s+"\./([\w./]+)\.js";\n', re.MULTILINE)
_SOURCE = re.compile(r'^const source = (".*");$', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+(?!default\b)", re.MULTILINE)


@cache
def join_modules(*names: str) -> str:
    """The modules `static/<name>.js` and all they import as one."""
    return "\n".join(_body(name) for name in with_imports(*names))


@cache
def widget_module(*names: str) -> str:
    """A widget's `_esm`: a few lines that hold the whole module as a string, and load it when the widget is drawn.

    anywidget gives up on a widget whose module has not loaded two seconds after it was made. A busy machine needs
    longer to compile those of a page of players; a string is there at once. Widgets with one module share it.
    """
    return _text("lazy").replace('"the module"', json.dumps(join_modules(*names)))


def whole_module(esm: str) -> str:
    """The module that `widget_module` put into a widget's `_esm`."""
    return json.loads(_SOURCE.search(esm)[1])


def with_imports(*names: str) -> list[str]:
    """These modules and all they import, each once, after those it imports itself."""
    found: dict[str, None] = {}
    for name in names:
        for one in (*with_imports(*_IMPORT.findall(_text(name))), name):
            found.setdefault(one)
    return list(found)


@cache
def stylesheet(*names: str) -> str:
    """The stylesheets `static/<name>.css`, in order, as one."""
    return "\n".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in names)


def _body(name: str) -> str:
    return f"// --- {name}.js\n" + _EXPORT.sub("", _IMPORT.sub("", _text(name)))


def _text(name: str) -> str:
    return (STATIC / f"{name}.js").read_text(encoding="utf-8")
