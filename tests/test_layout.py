"""The layout tells the flow: imports point one way, without cycles, and heavy libraries load only where they must."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import labkit

ROOT = Path(labkit.__file__).parent

LAYERS = [
    set(names.split())
    for names in (
        # words: what is talked about; they know nothing of tables, processes or pictures
        "event mesh quantity link pace task digits schedule rules plan faults nearest hosts seats part board job"
        " leftovers",
        # traces: questions and answers about what happened, or would
        "trace captures opening analysis comparison link_study explain replay cluster costs predict scorecard kineto"
        " proof report sentences formats",
        "engine launch watch blame process live view",
        "lab own_runs dashboards home lesson rank_files serve doctor calibrate",
        "cli",
    )
]
ALLOWED = {"engine": {0}, "view": {0, 1}, "launch": {0, 1, 2}, "watch": {0, 1, 2}, "blame": {0, 2}}
"""Layers that a package may import from, where that is less than all layers below its own."""
IN_A_RANK = {("labkit.launch", "labkit.engine.rank"), ("labkit.launch", "labkit.engine.rank.live")}
"""Imports that happen only in the new process, where launch ends and the engine begins."""


def modules() -> dict[str, Path]:
    paths = {p: p.relative_to(ROOT.parent).with_suffix("") for p in ROOT.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for path, name in paths.items()}


def imports_of(module: str, path: Path) -> set[str]:
    """Full names of what a module imports, at any depth of the code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = modules()
IMPORTS = {module: imports_of(module, path) for module, path in MODULES.items()}


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def layer_of(part: str) -> int:
    return next((number for number, names in enumerate(LAYERS) if part in names), -1)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_has_a_place_and_imports_only_below_it(module):
    part = part_of(module)
    if not part:
        return
    assert layer_of(part) >= 0, f"{module} has no place in LAYERS"
    for imported in IMPORTS[module]:
        other = part_of(imported)
        if not imported.startswith("labkit.") or layer_of(other) < 0 or (module, imported) in IN_A_RANK:
            continue
        allowed = ALLOWED.get(part, set(range(layer_of(part) + 1)))
        assert layer_of(other) in allowed or other == part, f"{module} must not import {imported}"


def test_no_cycles_at_import_time():
    graph = {
        module: {name for name in top_level_imports(path) if name in MODULES and name != module}
        for module, path in MODULES.items()
    }
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join([*above, module])
        if module not in done:
            for imported in sorted(graph[module]):
                visit(imported, (*above, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def top_level_imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in names if name in MODULES} or {node.module}
    return found


@pytest.mark.parametrize("module", sorted(MODULES))
def test_only_the_engine_imports_torch_and_only_view_imports_plotly(module):
    heads = {name.split(".")[0] for name in IMPORTS[module]}
    if part_of(module) != "engine":
        assert "torch" not in heads
    if part_of(module) != "view":
        assert not heads & {"plotly", "ipywidgets", "anywidget"}


def loaded_by(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_labkit_loads_neither_torch_nor_plotly_nor_polars():
    loaded = loaded_by("import labkit")
    assert not loaded & {"torch", "plotly", "polars", "numpy", "ipywidgets"}


def test_a_run_and_its_trace_need_no_torch_in_this_process():
    assert "torch" not in loaded_by("import labkit.lab, labkit.trace, labkit.cli")


@pytest.mark.engine
def test_a_rank_needs_no_table_library_and_no_pictures():
    loaded = loaded_by("import labkit.engine.rank")
    assert not loaded & {"polars", "plotly", "ipywidgets", "anywidget", "sklearn"}


def test_public_names_are_sorted_and_true():
    assert labkit.__all__ == sorted(labkit.__all__)
    for name in set(labkit.__all__) - {"Task", "own_task"}:  # those two load torch
        assert getattr(labkit, name) is not None
    with pytest.raises(AttributeError, match="labkit has no 'pan'"):
        _ = labkit.pan


def test_every_module_says_what_it_is():
    for module, path in MODULES.items():
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), module


def test_test_files_have_names_of_their_own():
    """Without packages pytest imports them by their names alone."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
