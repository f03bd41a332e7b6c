"""Profiler files read beside HolisticTraceAnalysis, and a gigabyte of them. `make bench`.

LABKIT_HTA_PYTHON names the Python of an environment that holds HolisticTraceAnalysis; each of the two reads in a fresh
process, in turn, so that the machine's mood is the same. What is timed is reading a file and its temporal breakdown,
without imports; what is weighed is the process's peak.
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

HANDED = Path(__file__).resolve().parents[3] / "shared" / "traces"
LARGE = HANDED / "rank1_of_2_nccl_216k_events.json.gz"
PEER = os.environ.get("LABKIT_HTA_PYTHON")
ROUNDS = 3

MEASURE = """
import json, logging, resource, sys, time, warnings
warnings.simplefilter("ignore"), logging.disable(logging.CRITICAL)
{imports}
files = sys.argv[1:]
start, cpu = time.monotonic(), time.process_time()
{work}
seconds, cpu = time.monotonic() - start, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
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
def test_import_and_breakdown_beside_the_reference(capsys):
    rounds = [(measured(PEER, PEERS, LARGE), measured(sys.executable, OURS, LARGE)) for _ in range(ROUNDS)]
    assert all(peer["found"] == ours["found"] for peer, ours in rounds)
    ratios = {what: [peer[what] / ours[what] for peer, ours in rounds] for what in ("seconds", "cpu", "peak_mib")}
    with capsys.disabled():
        for what, values in ratios.items():
            peer, ours = (statistics.median(one[what] for one in column) for column in zip(*rounds, strict=True))
            each = ", ".join(f"{value:.1f}" for value in values)
            print(f"\n| {what} | reference {peer:.2f} | labkit {ours:.2f} | {peer / ours:.1f} x (of rounds {each}) |")


@handed
def test_a_gigabyte_on_eight_ranks(tmp_path, capsys):
    """The large file's events over and over, each time later, a file for each rank."""
    document = json.loads(gzip.decompress(LARGE.read_bytes()))
    events = _repeated(document.pop("traceEvents"), 2**27)
    for rank in range(8):
        head = document | {"distributedInfo": document.get("distributedInfo", {}) | {"rank": rank, "world_size": 8}}
        (tmp_path / f"rank{rank}.json").write_text(f'{json.dumps(head)[:-1]}, "traceEvents": [{events}]}}')
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    ours = measured(sys.executable, OURS, *sorted(tmp_path.iterdir()))
    seconds, peak = f"{ours['seconds']:.1f} s", f"{ours['peak_mib']:,.0f} MiB"
    with capsys.disabled():
        print(f"\n| {size / 2**30:.2f} GiB of JSON, 8 ranks | {seconds} | peak {peak} |")
    assert size >= 2**30
    assert ours["peak_mib"] < 4096


def _repeated(events: list[dict], size: int) -> str:
    """The events as JSON, over and over until they are `size` long."""
    times = [event["ts"] for event in events if event.get("ph") == "X"]
    texts: list[str] = []
    while sum(map(len, texts)) < size:
        later = [_later(event, len(texts), max(times) - min(times) + 1000) for event in events]
        texts.append(json.dumps(later)[1:-1])
    return ",".join(texts)


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
