"""The user interrupts at any moment: the prompt is back, no rank stays, the next run is right. Times: `make soak`."""

import json
import random
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, signal, sys, tempfile, threading, time
import labkit, psutil
from labkit.launch import POOL

plan = labkit.Plan(dp=2, pp=2, layers=4, steps=3, seed=3)
path = os.path.join(tempfile.mkdtemp(), "trace.parquet")
started = time.monotonic()
right = labkit.run(plan)
right.save(path)
whole_s = time.monotonic() - started


def all_of_it():
    labkit.run(plan, verify=True).save(path)


def interrupted_after(seconds):
    def interrupt():
        os.killpg(0, signal.SIGINT)  # as a terminal does, and Jupyter

    timer = threading.Timer(seconds, interrupt)
    timer.start()
    try:
        all_of_it()
        timer.join()
        time.sleep(0.05)  # the interrupt came after the end
    except KeyboardInterrupt:
        pass
    return len([p.pid for p in psutil.Process().children(recursive=True) if p.pid not in idle()])


def idle():
    \"\"\"Ranks that wait for a job, and the server they are forked from with its helper.\"\"\"
    ranks = [rank.process.pid for rank in POOL._ranks]
    return ranks + [p.pid for p in psutil.Process().children()]


moments = json.loads(sys.argv[1])
for cold, share in moments:
    if cold:
        labkit.close()
    busy = interrupted_after(share * (whole_s if cold else 2 * whole_s / 3))
    again = labkit.run(plan)
    is_right = again.meta.losses == right.meta.losses
    kept = labkit.load(path).events.height > 0 and os.listdir(os.path.dirname(path)) == ["trace.parquet"]
    print(json.dumps([cold, share, busy, is_right, kept]), flush=True)
"""


@pytest.mark.timeout(300)
def test_an_interrupt_at_any_moment():
    chance = random.Random(4)
    moments = [(place % 3 == 0, chance.random()) for place in range(12)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(moments)], capture_output=True, text=True, timeout=280,
        start_new_session=True, check=False,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 12, done.stderr[-2000:]
    for cold, share, busy, is_right, kept in lines:
        told = f"{'cold' if cold else 'warm'} ranks, at {share:.2f} of the run"
        assert (busy, is_right, kept) == (0, True, True), told
