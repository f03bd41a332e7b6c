"""The ways to install labkit agree: pyproject's ranges, the lock's pins, and what environment.yml hands to pip."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
LOCK_LINES = [
    line for line in (ROOT / "requirements.lock").read_text().splitlines() if line and not line.startswith("#")
]

BASE = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
ASKED = [Requirement(text) for group in (BASE, *EXTRAS.values()) for text in group]

# name==version, then perhaps a marker. So no URL, no path, no option, no range and no local tag such as +cpu.
PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>\d[\w.]*)(?P<marker> ; [\w ]+[=<>!]+ \"[\w.]+\")?")


def pins() -> dict[str, str]:
    """Canonical name -> the locked version, for the pins that apply to this platform."""
    locked = [Requirement(line) for line in LOCK_LINES]
    return {
        canonicalize_name(pin.name): next(iter(pin.specifier)).version
        for pin in locked
        if pin.marker is None or pin.marker.evaluate()
    }


def needs(name: str, extras: set[str]) -> list[Requirement]:
    """What an installed distribution requires here, with these of its extras."""
    found = [Requirement(text) for text in metadata.requires(name) or []]
    found = [r for r in found if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in extras | {""})]
    if name == "torch":  # a CUDA build pins its nvidia and triton wheels itself, exactly, and only on Linux
        found = [r for r in found if not re.search("platform_system|sys_platform", str(r.marker))]
    return found


def test_every_lock_line_is_an_exact_pin():
    assert [line for line in LOCK_LINES if not PIN.fullmatch(line)] == []


def test_lock_has_each_name_once():
    names = [canonicalize_name(Requirement(line).name) for line in LOCK_LINES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("requirement", ASKED, ids=str)
def test_pin_is_inside_its_range(requirement: Requirement):
    pin = pins().get(canonicalize_name(requirement.name))
    assert pin is not None, f"{requirement.name} is not in requirements.lock: install it in .venv and run make lock"
    assert pin in requirement.specifier


def test_build_backend_is_locked():
    """`make setup` builds labkit without isolation, with the lock's setuptools."""
    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        assert pins()[canonicalize_name(requirement.name)] in requirement.specifier


def test_torch_is_the_version_that_capture_was_checked_with():
    assert pins()["torch"] == "2.13.0"


def test_lock_is_closed_and_holds_nothing_else():
    """Follow all requirements through the installed metadata: each is pinned in range, and each pin is reached."""
    locked, reached, queue = pins(), set(), list(ASKED)
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        step = (name, frozenset(requirement.extras))
        if step in reached:
            continue
        reached.add(step)
        assert name in locked, f"{requirement} is needed but not locked"
        assert locked[name] in requirement.specifier
        try:
            queue += needs(name, set(requirement.extras))
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed here: the walk needs the whole lock (make setup)")
    assert set(locked) - {name for name, _ in reached} == set()


def test_python_floor_is_the_same_everywhere():
    (conda_python,) = (d for d in ENVIRONMENT["dependencies"] if isinstance(d, str) and d.startswith("python="))
    floor = conda_python.removeprefix("python=")
    assert SpecifierSet(PROJECT["project"]["requires-python"]) == SpecifierSet(f">={floor}")
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + floor.replace(".", "")


def test_every_pin_runs_on_the_first_python_that_is_promised():
    """Debian 12 ships 3.11.2, so a pin that wants 3.11.5 would break `make setup` there."""
    floor = PROJECT["project"]["requires-python"].removeprefix(">=") + ".0"
    locked = [d for d in metadata.distributions() if pins().get(canonicalize_name(d.name)) == d.version]
    wants = {f"{d.name} {d.version}": d.metadata["Requires-Python"] or "" for d in locked}
    assert {name: python for name, python in wants.items() if floor not in SpecifierSet(python)} == {}


def test_conda_takes_only_python_and_pip_and_leaves_the_rest_to_the_lock():
    plain = [d.split("=")[0] for d in ENVIRONMENT["dependencies"] if isinstance(d, str)]
    (pip_section,) = (d["pip"] for d in ENVIRONMENT["dependencies"] if isinstance(d, dict))
    assert plain == ["python", "pip"]
    assert pip_section == ["-r requirements.lock", "-e ."]
