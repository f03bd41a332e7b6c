"""A trace: one table, one file, nothing lost on the way, and clear words for what is no trace."""

import math
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from labkit.event import COLUMNS, FIELDS, KINDS, NONE
from labkit.part import Names, Part, decode_part, encode_part
from labkit.trace import SCHEMA, Meta, Trace, TraceError, from_events, load, merge

META = Meta("measured", plan={"dp": 2, "task": "digits"}, num_ranks=2)


def row(**fields) -> list[int]:
    return [fields.get(name, NONE) for name in FIELDS]


def part(rank: int, *rows, **rest) -> Part:
    names = Names(["fc0", "fc1"], ["all_reduce", "grad"], [[0, 1], [1]], ["float32"])
    return Part(rank, names, np.array(rows, dtype=np.int64).tobytes(), **rest)


def test_every_column_is_explained():
    assert list(COLUMNS) == list(SCHEMA)


def test_codes_become_names_and_what_does_not_apply_becomes_null():
    kind = {str(k): i for i, k in enumerate(KINDS)}
    merged = merge(
        [
            part(
                0,
                row(kind=kind["load"], step=0, start_ns=105, end_ns=106, extra=0),
                row(kind=kind["forward"], step=0, layer=1, start_ns=110, end_ns=120, cpu_ns=7),
                samples=[[3, 4]],
            ),
            part(
                1,
                row(kind=kind["sync"], op=0, group=0, dtype=0, seq=2, size_bytes=8, start_ns=100, end_ns=130),
                row(kind=kind["value"], op=1, layer=0, dtype=0, start_ns=131, end_ns=131, extra=0, size_bytes=4),
                values=[([1], b"\0\0\x80?")],
                dropped=3,
            ),
        ],
        META,
    )
    sync, loaded, forward, value = merged.events.to_dicts()
    assert (sync["op"], sync["axis"], sync["group"], sync["seq"], sync["dtype"]) == (
        "all_reduce",
        "dp",
        [0, 1],
        2,
        "float32",
    )
    assert (sync["start_ns"], sync["end_ns"], sync["rank"]) == (0, 30, 1)  # the clock starts at the first event
    assert (loaded["samples"], loaded["layer"], loaded["op"]) == ([3, 4], None, None)
    assert (forward["layer"], forward["cpu_ns"], forward["step"], forward["samples"]) == ("fc1", 7, 0, None)
    assert np.frombuffer(value["data"], value["dtype"]).tolist() == [1.0]
    assert value["shape"] == [1]
    assert merged.meta.dropped_events == 3


def test_parts_travel_as_bytes():
    sent = part(1, row(kind=0, start_ns=1, end_ns=2), samples=[[1]], values=[([2], b"ab")], dropped=1)
    assert decode_part(encode_part(sent)) == sent


def test_save_and_load_give_the_same_trace(tmp_path):
    trace = from_events([{"rank": 0, "kind": "forward", "start_ns": 1, "end_ns": 5, "layer": "a"}], META)
    path = trace.save(tmp_path / "a.parquet")
    again = load(path)
    assert again.events.equals(trace.events)
    assert again.meta == trace.meta
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    trace = from_events([], META)
    path = trace.save(tmp_path / "a.parquet")
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(OSError, match="free some space"):
        trace.save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


FULL = """
import resource, signal, sys
from labkit.trace import Meta, from_events
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
rows = [{"rank": i % 7, "kind": "forward", "start_ns": i * i, "end_ns": i**3} for i in range(20_000)]
try:
    from_events(rows, Meta("measured")).save(sys.argv[1])
except OSError as error:
    print(error)
"""


def test_a_disk_that_is_really_full(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "a.parquet"], capture_output=True, text=True, check=True
    )
    assert "free some space" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_a_number_survives_the_file(tmp_path):
    meta = Meta(
        "measured", losses=(1.0, math.nan), equality={"loss_max_abs_diff": math.nan, "replicas_identical": True}
    )
    again = load(from_events([], meta).save(tmp_path / "a.parquet")).meta
    assert again.losses[0] == 1 and math.isnan(again.losses[1])
    assert math.isnan(again.equality["loss_max_abs_diff"]) and again.equality["replicas_identical"] is True


def test_saving_through_a_link_writes_where_it_points(tmp_path):
    (tmp_path / "link.parquet").symlink_to(tmp_path / "real.parquet")
    from_events([], META).save(tmp_path / "link.parquet")
    assert (tmp_path / "link.parquet").is_symlink()
    assert load(tmp_path / "real.parquet").meta == META


@pytest.mark.parametrize("content", [b"", b"not parquet at all", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_what_is_no_trace_is_refused(tmp_path, content):
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(TraceError, match="cannot be read"):
        load(tmp_path / "x.parquet")


def test_other_parquet_files_and_missing_ones(tmp_path):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(TraceError, match="not a labkit trace"):
        load(tmp_path / "x.parquet")
    with pytest.raises(TraceError, match="no trace at"):
        load(tmp_path / "y.parquet")


def test_empty_traces_survive(tmp_path):
    empty = merge([], META)
    assert empty.events.is_empty()
    assert load(empty.save(tmp_path / "e.parquet")).events.schema == pl.Schema(SCHEMA)


def test_a_trace_says_what_it_is():
    paced = Trace(
        from_events([], META).events,
        Meta("paced", plan={"task": "chars", "pp": 4, "schedule": "zbv", "time_scale": 10}),
    )
    assert paced.title == "chars, pp 4, zbv (paced, 10 times slower)"
    with pytest.raises(TraceError, match="known are measured"):
        Meta("guessed")


def test_unknown_columns_are_refused():
    with pytest.raises(TraceError, match="unknown columns colour"):
        from_events([{"rank": 0, "kind": "step", "colour": 1}], META)
