"""How long until labkit answers: its import, its help, and `make lab` until a page can be used. `make bench`."""

import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from figures import ROOT, spread_of

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

LABKIT = Path(sys.executable).with_name("labkit")
IMPORT = "import time; start = time.perf_counter(); import labkit; print(time.perf_counter() - start)"


def milliseconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - start)


def test_import(figure):
    """Both as a statement takes, and as a whole new Python takes beside one that does nothing."""
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True) for _ in range(7)
    ]
    statement = [1e3 * float(run.stdout) for run in runs[1:]]
    whole, bare = ([milliseconds([sys.executable, "-c", words]) for _ in range(5)] for words in ("import labkit", ""))
    around = f"a whole Python with it {statistics.median(whole):.0f} ms, without {statistics.median(bare):.0f} ms"
    figure(
        f"`import labkit` ({around})",
        ours=f"{statistics.median(statement):.0f} ms", spread=spread_of(statement, "ms"), goal="150 ms",
    )  # fmt: skip


def test_help(figure):
    milliseconds([str(LABKIT), "--help"])
    found = [milliseconds([str(LABKIT), "--help"]) for _ in range(7)]
    bare = [milliseconds([sys.executable, "-c", ""]) for _ in range(5)]
    figure(
        f"`labkit --help` (a Python that does nothing: {statistics.median(bare):.0f} ms)",
        ours=f"{statistics.median(found):.0f} ms", spread=spread_of(found, "ms"), goal="300 ms",
    )  # fmt: skip


@contextlib.contextmanager
def make_lab() -> Iterator[str]:
    """`make lab` as a reader calls it, but for the browser window; ended with all it started. Gives its address."""
    lab = subprocess.Popen(
        ["make", "--no-print-directory", "lab"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | {"BROWSER": "true"}, start_new_session=True,
    )  # fmt: skip
    try:
        address = next(found[0] for line in lab.stdout if (found := re.search(r"http://\S+", line)))
        yield address
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            lab.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(lab.pid, signal.SIGKILL)


@pytest.mark.parametrize(("what", "notebook", "seen"), [
    ("the home page", "", "li a"),
    ("the tour, its player drawn", "voila/render/00_tour.ipynb", ".labkit-timeline canvas"),
    ("the explorer, its form ready", "voila/render/explorer.ipynb", ".labkit-form button"),
])  # fmt: skip
def test_make_lab(what, notebook, seen, figure):
    """From the command to what a reader can use in Chromium, which is there already, as a reader's browser is."""
    sync_api = pytest.importorskip("playwright.sync_api")
    from browser_of import chromium

    found = []
    with sync_api.sync_playwright() as playwright, chromium(playwright) as browser:
        for _ in range(3):
            page = browser.new_page()
            start = time.perf_counter()
            with make_lab() as address:
                page.goto(address + notebook, wait_until="commit")
                page.locator(seen).first.wait_for(timeout=120_000)
                found.append(time.perf_counter() - start)
                page.goto("about:blank")  # leaving ends the page's kernel
                page.close()
                time.sleep(1)
    figure(
        f"`make lab`, set up already: to {what}", ours=f"{statistics.median(found):.1f} s",
        spread=spread_of(found), goal="6 s",
    )  # fmt: skip
