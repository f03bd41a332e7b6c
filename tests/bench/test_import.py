"""Profiler files read beside HolisticTraceAnalysis, and a gigabyte of them. `make bench`.

LABKIT_HTA_PYTHON names the Python of an environment that holds HolisticTraceAnalysis; each of the two reads in a fresh
process, in turn, so that the machine's mood is the same. What is timed is reading a file and its temporal breakdown,
without imports; what is weighed is the process's peak (VmHWM: getrusage's also counts what the parent had).
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from figures import ratio_of
from growth import growth_row

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

HANDED = Path(__file__).resolve().parents[3] / "shared" / "traces"
LARGE = HANDED / "rank1_of_2_nccl_216k_events.json.gz"
PEER = os.environ.get("LABKIT_HTA_PYTHON")
ROUNDS = 3

MEASURE = """
import json, logging, sys, time, warnings
warnings.simplefilter("ignore"), logging.disable(logging.CRITICAL)
{imports}
files = sys.argv[1:]
start, cpu = time.monotonic(), time.process_time()
{work}
seconds, cpu = time.monotonic() - start, time.process_time() - cpu
(peak,) = [int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
print("RESULT", json.dumps(dict(seconds=seconds, cpu=cpu, peak_mib=peak, found=[int(x) for x in found])))
"""
OURS = MEASURE.format(
    imports="from labkit import analysis, kineto",
    work="table = analysis.temporal_breakdown(kineto.read(files))\n"
    "found = [x // 1000 for x in table.select('idle_ns', 'compute_ns', 'non_compute_ns').row(0)]",
)
PEERS = MEASURE.format(
    imports="from hta.trace_analysis import TraceAnalysis",
    work="traces = TraceAnalysis(trace_files=dict(enumerate(files)), trace_dir='/')\n"
    "table = traces.get_temporal_breakdown(visualize=False)\n"
    "found = table.iloc[0][['idle_time(us)', 'compute_time(us)', 'non_compute_time(us)']]",
)

handed = pytest.mark.skipif(not LARGE.is_file(), reason=f"the handed profiler files are not in {HANDED.name}")


def measured(python: str, program: str, *files: Path) -> dict:
    done = subprocess.run([python, "-c", program, *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("RESULT ")[2])


@handed
@pytest.mark.skipif(not PEER, reason="set LABKIT_HTA_PYTHON to a Python that has HolisticTraceAnalysis")
def test_import_and_breakdown_beside_the_reference(figure):
    rounds = [(measured(PEER, PEERS, LARGE), measured(sys.executable, OURS, LARGE)) for _ in range(ROUNDS)]
    assert all(peer["found"] == ours["found"] for peer, ours in rounds)
    kinds = [("seconds", "wall", "s", "20 x"), ("cpu", "processor time", "s", "-"), ("peak_mib", "peak", "MiB", "2 x")]
    for key, what, unit, goal in kinds:
        pairs = [(peer[key], ours[key]) for peer, ours in rounds]
        peer, ours = (f"{statistics.median(column):.3g} {unit}" for column in zip(*pairs, strict=True))
        ratio, spread = ratio_of(pairs)
        what = f"import and breakdown of 216,092 events: {what}"
        figure(what, ours=ours, peer=f"HTA {peer}", ratio=f"{ratio:.1f} x", spread=spread, goal=goal)


@handed
def test_a_gigabyte_on_eight_ranks(tmp_path, figure):
    """The large file's events over and over, each time later, a file for each rank; an eighth of it first."""
    document = json.loads(gzip.decompress(LARGE.read_bytes()))
    texts = _repeated(document.pop("traceEvents"), 2**27)
    found = []
    for part in (8, 4, 2, 1):
        files = _files(tmp_path, document, ",".join(texts[: len(texts) // part]))
        size = sum(path.stat().st_size for path in files)
        found.append((size, measured(sys.executable, OURS, *files)))
    size, ours = found[-1]
    what = f"{size / 2**30:.2f} GiB of JSON, 8 ranks"
    figure(f"{what}: wall", ours=f"{ours['seconds']:.1f} s", goal="60 s")
    figure(f"{what}: processor time", ours=f"{ours['cpu']:.1f} s")
    figure(f"{what}: peak", ours=f"{ours['peak_mib']:,.0f} MiB", goal="4,096 MiB")
    points = [(size / 2**20, run["cpu"]) for size, run in found]
    figure("import and breakdown: processor time by MiB of JSON, 8 ranks", **growth_row(points))
    assert size >= 2**30
    assert ours["peak_mib"] < 4096


def _files(folder: Path, document: dict, events: str) -> list[Path]:
    paths = [folder / f"rank{rank}.json" for rank in range(8)]
    for rank, path in enumerate(paths):
        head = document | {"distributedInfo": document.get("distributedInfo", {}) | {"rank": rank, "world_size": 8}}
        path.write_text(f'{json.dumps(head)[:-1]}, "traceEvents": [{events}]}}')
    return paths


def _repeated(events: list[dict], size: int) -> list[str]:
    """The events as JSON, each by itself, over and over until they are `size` long."""
    times = [event["ts"] for event in events if event.get("ph") == "X"]
    lasts_us = max(times) - min(times) + 1000
    texts: list[str] = []
    nth = written = 0
    while written < size:
        again = [json.dumps(_later(event, nth, lasts_us)) for event in events]
        texts += again
        nth, written = nth + 1, written + sum(map(len, again))
    return texts


def _later(event: dict, nth: int, span_us: float) -> dict:
    """The event in its n-th repetition: later, with launches and steps of its own."""
    if not isinstance(event.get("ts"), int | float):
        return event
    event = event | {"ts": event["ts"] + nth * span_us}
    args, name = event.get("args") or {}, str(event.get("name"))
    if isinstance(args.get("correlation"), int) and args["correlation"] > 0:
        event["args"] = args | {"correlation": args["correlation"] + nth * 10**7}
    if name.startswith("ProfilerStep#"):
        event["name"] = f"ProfilerStep#{int(name[13:]) + 100 * nth}"
    return event
