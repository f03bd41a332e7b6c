"""The disk is full: no half file takes a good one's place, and a run that cannot start says so and leaves nothing."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from labkit.part import RankFile
from labkit.trace import Meta, from_events, load

EVENT = {"rank": 0, "kind": "forward", "step": 0, "layer": "fc0", "end_ns": 9}
DISK_BYTES = 64 * 1024


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB, which only root can have."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "labkit-test", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system of a known size can be mounted here: needs root on Linux")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def made_up(num_events: int):
    """Times that no compression makes small."""
    starts = [place * place * 7919 % 1_000_003 for place in range(num_events)]
    return from_events([EVENT | {"start_ns": start, "end_ns": start + 1} for start in starts], Meta("measured"))


def assert_whole_and_alone(path: Path, num_events: int) -> None:
    assert load(path).events.height == num_events
    assert os.listdir(path.parent) == [path.name]


def test_a_trace_that_does_not_fit_leaves_the_earlier_one_whole(small_disk):
    path = made_up(10).save(small_disk / "one.parquet")
    with pytest.raises(OSError, match=r"cannot save the trace to .*one\.parquet.*free some space"):
        made_up(50_000).save(path)
    assert_whole_and_alone(path, 10)
    made_up(20).save(path)
    assert_whole_and_alone(path, 20)


def python(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], env={**os.environ, **environment}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_file_that_may_not_grow_so_large_leaves_the_earlier_one_whole(tmp_path):
    """What a full disk is to root, a limit is to everybody."""
    path = made_up(10).save(tmp_path / "one.parquet")
    done = python(
        f"""
        import resource, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_disk_full import made_up
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
        try:
            made_up(50_000).save({str(path)!r})
        except OSError as error:
            print(error)
        """
    )
    assert "cannot save the trace to" in done.stdout and "free some space" in done.stdout, done.stderr
    assert_whole_and_alone(path, 10)


def rank_file(num_bytes: int) -> RankFile:
    return RankFile(0, None, [], [], [bytes(num_bytes)], [], 0.0, "")


def test_a_ranks_file_that_does_not_fit_leaves_the_earlier_one_whole(small_disk):
    rank_file(10).save(small_disk)
    with pytest.raises(OSError, match="No space left"):
        rank_file(2 * DISK_BYTES).save(small_disk)
    assert os.listdir(small_disk) == ["rank0.labkit"]
    assert msgspec.msgpack.decode((small_disk / "rank0.labkit").read_bytes(), type=RankFile) == rank_file(10)


def test_ranks_that_find_no_room_say_so_and_the_next_run_works(small_disk, tmp_path):
    """Their board is reserved: a mapped file without room would end the kernel by a signal."""
    done = python(
        f"""
        import labkit, psutil, tempfile
        good = {str(tmp_path)!r}
        plan = labkit.Plan(dp=4, steps=2)
        try:
            labkit.run(plan)
        except labkit.RunError as error:
            print(error)
        print(len([p for p in psutil.Process().children(recursive=True) if "forkserver" not in " ".join(p.cmdline())]))
        tempfile.tempdir = good
        print(len(labkit.run(plan).meta.losses))
        """,
        TMPDIR=str(small_disk),
    )
    message, *rest = done.stdout.splitlines()
    assert message.startswith("the ranks could not start: No space left on device") and str(small_disk) in message
    assert rest == ["0", "2"], done.stderr
    assert not list(small_disk.rglob("*.ticket"))
