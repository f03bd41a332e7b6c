"""Two hosts on one machine: network namespaces joined by a cable, the second with a clock of its own.

Needs root and the kernel's network and time namespaces; where they are missing, this is skipped, and says so.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from labkit.rank_files import merge_folder

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "scripts" / "train.py"
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
AHEAD_S = 5000


def _quiet(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


@contextlib.contextmanager
def _cable() -> Iterator[list[str]]:
    """Two network namespaces, 10.77.0.1 and 10.77.0.2."""
    names = [f"labkit-{os.getpid()}-{host}" for host in (0, 1)]
    ends = [f"lk{os.getpid() % 10**6}{host}" for host in "ab"]
    try:
        commands = [f"netns add {name}" for name in names]
        commands += [f"link add {ends[0]} netns {names[0]} type veth peer name {ends[1]} netns {names[1]}"]
        for host, (name, end) in enumerate(zip(names, ends)):
            inside = f"-n {name}"
            commands += [f"{inside} addr add 10.77.0.{host + 1}/24 dev {end}"]
            commands += [f"{inside} link set {end} up", f"{inside} link set lo up"]
        if not all(_quiet("ip", *command.split()) for command in commands):
            pytest.skip("NO NETWORK NAMESPACES HERE: clocks of several hosts are NOT tested")
        yield [f"{name} {end}" for name, end in zip(names, ends)]
    finally:
        for name in names:
            _quiet("ip", "netns", "del", name)


def _host(place: str, number: int, out: Path) -> subprocess.Popen:
    namespace, interface = place.split()
    clock = ["unshare", "--time", "--monotonic", str(AHEAD_S), "--fork"] if number else []
    torchrun = [TORCHRUN, "--nnodes=2", "--nproc-per-node=1", f"--node-rank={number}", "--master-addr=10.77.0.1"]
    command = ["ip", "netns", "exec", namespace, *clock, *torchrun, "--master-port=29511", str(SCRIPT), "ddp", str(out)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.skipif(not shutil.which("ip") or os.geteuid() != 0, reason="NO ROOT OR NO ip: two hosts are NOT tested")
def test_clocks_of_two_hosts_are_brought_together(tmp_path):
    if not _quiet("unshare", "--time", "--monotonic", "1", "--fork", "true"):
        pytest.skip("NO TIME NAMESPACES HERE: clocks of several hosts are NOT tested")
    with _cable() as places:
        hosts = [_host(place, number, tmp_path) for number, place in enumerate(places)]
        outputs = [host.communicate(timeout=150)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], outputs
    trace = merge_folder(tmp_path)
    (note,) = (note for note in trace.meta.notes if note.startswith("the clock of host"))
    offset_ms, uncertainty_ms = (float(found.replace(",", "")) for found in re.findall(r"([-\d.,]+) ms", note))
    assert 0 < uncertainty_ms < 50
    assert abs(offset_ms + AHEAD_S * 1000) <= uncertainty_ms
    # No rank can hold the sum before the last one has given its part.
    reduced = trace.of("sync").filter((pl.col("op") == "all_reduce") & (pl.col("step") >= 0))
    both = reduced.group_by("seq").agg(pl.len(), pl.col("start_ns").max(), pl.col("end_ns").min())
    assert both["len"].to_list() == [2] * 3
    assert (both["end_ns"] - both["start_ns"]).min() >= -2e6 * uncertainty_ms
    assert trace.events["end_ns"].max() < 60e9  # uncorrected, the trace would last over an hour
