"""What this machine can run, and why not.

In: nothing. Out: findings, each with its reason. Starts two ranks to see for itself.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata

import psutil

from labkit import lab, launch
from labkit.plan import Plan
from labkit.report import worst_difference

_PACKAGES = ("torch", "jupyterlab", "ipywidgets", "plotly", "anywidget", "voila", "polars", "scikit-learn")


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `needed`: labkit cannot work without it."""

    what: str
    ok: bool
    detail: str
    needed: bool = True


def examine() -> list[Finding]:
    """Look at Python, packages, machine, GPUs and browser, and run two ranks."""
    return [_python(), *map(_package, _PACKAGES), _machine(), _gpus(), _browser(), _two_ranks()]


def _python() -> Finding:
    return Finding("Python", sys.version_info >= (3, 11), f"{platform.python_version()} (3.11 or newer is needed)")


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, False, f"not installed: pip install {name}")


def _machine() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = psutil.virtual_memory().available / 2**30
    detail = (
        f"{cores} cores, {free:.1f} GiB memory free; up to {Plan.max_ranks} ranks by default. "
        f"With more ranks than cores, measured times include waiting for a core; paced runs do not need cores"
    )
    return Finding("machine", free > 1, detail)


def _gpus() -> Finding:
    gpus = launch.num_gpus()
    detail = f"{gpus}: backend nccl runs up to {gpus} ranks" if gpus else "none: backend nccl cannot run, gloo can"
    return Finding("GPUs", gpus > 0, detail, needed=False)


def _browser() -> Finding:
    found = next((name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None)
    return Finding("Chromium", found is not None, found or "not found: browser tests are skipped", needed=False)


def _two_ranks() -> Finding:
    try:
        trace = lab.run(Plan(dp=2, steps=2), verify=True)
    except (RuntimeError, OSError) as error:
        return Finding("a run of 2 ranks", False, str(error))
    worst = worst_difference(trace.meta.equality)
    return Finding("a run of 2 ranks", worst < 1e-5, f"largest difference from the serial run {worst:.1e}")
