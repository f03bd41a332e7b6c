"""Pictures for the home page: for every notebook, one step of the run it is about.

In: a folder of notebooks. Out: thumbnails by path, as JSON on stdout: `python -m labkit.home FOLDER`. The server of the
dashboards starts this beside itself, so that neither waits for the other's imports.

A notebook is about the plan of most ranks that it names and whose capture is kept, or the file in `assets` that its
metadata names ({"labkit": {"capture": "pipeline_1f1b.parquet"}}).
"""

from __future__ import annotations

import ast
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labkit.captures import CAPTURES, kept_capture
from labkit.plan import Plan
from labkit.trace import Trace, TraceError, load


def thumbnails(folder: Path) -> dict[str, dict[str, Any]]:
    """The pictures of those notebooks whose runs are kept."""
    found = {path.name: picture_of(path) for path in sorted(folder.glob("*.ipynb"))}
    return {name: picture for name, picture in found.items() if picture is not None}


def picture_of(path: Path) -> dict[str, Any] | None:
    """The picture of the run that a notebook is about, if one is kept that shows work."""
    from labkit.view.thumbnail import thumbnail

    pictures = [picture for trace in captures_of(path) if (picture := thumbnail(trace)) is not None]
    return max(pictures, key=lambda picture: picture["rows"], default=None)  # of equal ones the first


def captures_of(path: Path) -> list[Trace]:
    """The kept runs that a notebook names, in order."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        named = notebook["metadata"].get("labkit", {}).get("capture")
        sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        if named:
            return [load(_within_assets(named))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, TraceError):
        return []
    return [kept for plan in plans_in(sources) if (kept := kept_capture(plan)) is not None]


def _within_assets(name: str) -> Path:
    assets = CAPTURES.parent.resolve()
    path = (assets / name).resolve()
    if not path.is_relative_to(assets):
        raise ValueError(f"{name} is not in {assets}")
    return path


def plans_in(sources: list[str]) -> Iterator[Plan]:
    """Every `Plan(...)` and `plan.vary(...)` of plain values, names and dicts of such. The code is read, not run."""
    known: dict[str, Any] = {}
    for source in sources:
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a cell with a line of the notebook's own
            continue
        for node in ast.walk(tree):
            with contextlib.suppress(ValueError, TypeError):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    known[node.targets[0].id] = _plain(node.value, known)
                elif isinstance(node, ast.Call) and isinstance(found := _plain(node, known), Plan):
                    yield found


def _plain(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """The value of a literal, a known name, a dict, a Plan or a plan varied. Raises ValueError for anything else."""
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if not isinstance(node, ast.Call) or node.args:
        return ast.literal_eval(node)
    called, keywords = node.func, _keywords(node, known)
    name = getattr(called, "attr", getattr(called, "id", ""))
    if name == "vary" and isinstance(plan := _plain(called.value, known), Plan):
        return plan.vary(**keywords)
    if name not in ("Plan", "dict"):
        raise ValueError(f"{name} is not read")
    return {"Plan": Plan, "dict": dict}[name](**keywords)


def _keywords(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a call, `**names` included."""
    found: dict[str, Any] = {}
    for one in call.keywords:
        found |= _plain(one.value, known) if one.arg is None else {one.arg: _plain(one.value, known)}
    return found


if __name__ == "__main__":
    print(json.dumps(thumbnails(Path(sys.argv[1]))))
