"""How long until a large trace of ours can be shown. `make bench`; the browser's part is in browser/test_speed.py."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from figures import spread_of
from long_trace import long_trace

import labkit

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

NUM_EVENTS, ROUNDS = 1_000_000, 5
FRESH = """
import json, sys, time
start = time.perf_counter()
import labkit
trace = labkit.load(sys.argv[1])
drawn = getattr(labkit, sys.argv[2])(trace)
print(json.dumps(time.perf_counter() - start))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return long_trace(NUM_EVENTS).save(tmp_path_factory.mktemp("load") / "long.parquet")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@pytest.mark.parametrize("name", ["timeline", "breakdown_figure"])
def test_load_and_first_figure(name, path, figure):
    """The file read and the figure made, modules loaded; the widget with all that goes to the page."""
    show = getattr(labkit, name)
    show(labkit.load(path))
    loads = [seconds(lambda: labkit.load(path)) for _ in range(ROUNDS)]
    both = [seconds(lambda: show(labkit.load(path))) for _ in range(ROUNDS)]
    what = "the `timeline` widget" if name == "timeline" else f"`{name}`"
    figure(
        f"1M events, 4 ranks: load and {what}",
        ours=f"{statistics.median(both):.2f} s ({statistics.median(loads):.2f} s of it load)",
        spread=spread_of(both), goal="1 s",
    )  # fmt: skip


def test_in_a_new_process(path, figure):
    """The same with what it imports: a notebook's very first cell."""
    command = [sys.executable, "-c", FRESH, str(path), "timeline"]
    found = [json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    figure(
        "1M events: `import labkit`, load and the `timeline` widget in a new Python, with all imports",
        ours=f"{statistics.median(found):.2f} s", spread=spread_of(found),
    )  # fmt: skip
