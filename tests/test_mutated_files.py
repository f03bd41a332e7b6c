"""Every file that is read, mutated at random: it reads, or it is refused by the error that its reader documents."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_kineto import ALL_REDUCE, PARAMS, document, kernel, rank_events, span

from labkit import cluster, kineto, schedule
from labkit.captures import kept_capture
from labkit.own_runs.record import KEPT, load_record
from labkit.part import Names, Part, RankFile, encode_part
from labkit.plan import Plan, PlanError
from labkit.predict import predict_cases, read_cases
from labkit.rank_files import merge_folder
from labkit.trace import Meta, TraceError, from_events, load

MORE = int(os.environ.get("LABKIT_EXAMPLES", "1"))
EVENT = {"rank": 0, "kind": "forward", "step": 0, "layer": "fc0", "start_ns": 5, "end_ns": 9, "samples": [1, 2]}


def _trace_file(path: Path) -> None:
    from_events([EVENT] * 50, Meta("measured", plan=Plan().to_dict(), losses=(1.0, 0.5))).save(path)


def _rank_file(path: Path) -> None:
    row = [3, 0, 0, 0, 0, 5, 9, *[-1] * 13]
    part = Part(0, Names(["fc0"], [], [], []), np.array([row] * 5, dtype=np.int64).tobytes())
    file = RankFile(0, Plan().to_dict(), ["fc0"], [[1.0]], [encode_part(part)], [0.1], 0.1, "job")
    path.write_bytes(msgspec.msgpack.encode(file))


def _cluster_file(path: Path) -> None:
    cluster.save(cluster.as_cluster("a100"), path)


CASES = "layers,hidden,heads,gpus,tp,global_batch,measured_step_s\n24,2304,24,32,1,512,2.7\n36,4096,32,128,4,512,2.8\n"


@dataclass(frozen=True)
class Reader:
    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    errors: tuple[type[Exception], ...]


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8")


def profiler_file() -> str:
    """What PyTorch's profiler writes, in small."""
    return json.dumps(
        document([*rank_events(), span("nccl:all_reduce", 1020, 2, **PARAMS), kernel(ALL_REDUCE, 1080, 5, 9)])
    )


def _order_of(path: Path) -> schedule.Schedule:
    order = schedule.Schedule.from_text(path.read_text(encoding="utf-8", errors="replace"))
    schedule.check(order)
    return order


READERS = [
    Reader("trace.parquet", _trace_file, load, (TraceError,)),
    Reader("rank0.labkit", _rank_file, lambda path: merge_folder(path.parent), (ValueError, FileNotFoundError)),
    Reader("plan.json", _text(Plan(dp=2, link="pcie4").to_json()), Plan.load, (PlanError,)),
    Reader("order.csv", _text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"), _order_of, (schedule.ScheduleError,)),
    Reader("cases.csv", _text(CASES), lambda path: predict_cases(read_cases(path), "a100"), (ValueError,)),
    Reader("cluster.json", _cluster_file, cluster.load, (ValueError,)),
    Reader("profile.json", _text(profiler_file()), kineto.read, (TraceError,)),
    Reader("own_runs.json", lambda path: path.write_bytes(KEPT.read_bytes()), load_record, (ValueError,)),
]


HOW = ("set", "cut", "repeat", "insert", "truncate")
WORDS = (b"NaN", b"-1", b"1e999", b"null", b"{")
Change = tuple[str, float, int, bytes]
"""How, where (a share of the file), how many bytes, new bytes."""

mutations = st.lists(
    st.tuples(
        st.sampled_from(HOW),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 64),
        st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(WORDS)),
    ),
    min_size=1,
    max_size=3,
)


def mutated(data: bytes, changes: list[Change]) -> bytes:
    """Bytes overwritten, cut out, repeated, put in, or the end lost."""
    for how, where, length, new in changes:
        at = int(where * len(data))
        data = {
            "set": data[:at] + new + data[at + len(new) :],
            "cut": data[:at] + data[at + length :],
            "repeat": data[: at + length] + data[at:],
            "insert": data[:at] + new + data[at:],
            "truncate": data[:at],
        }[how]
    return data


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_it_reads_or_refuses_in_words(reader):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / reader.name
        reader.write(path)
        whole = path.read_bytes()
        reader.read(path)

        @settings(max_examples=40 * MORE, deadline=None, suppress_health_check=list(HealthCheck))
        @given(mutations)
        def attempt(changes):
            path.write_bytes(mutated(whole, changes))
            try:
                reader.read(path)
            except reader.errors as error:
                assert len(str(error)) > 15

        attempt()


def test_a_spoiled_capture_is_no_capture(tmp_path, monkeypatch):
    from labkit import captures

    monkeypatch.setattr(captures, "CAPTURES", tmp_path)
    captures.capture_path(Plan()).write_bytes(b"PAR1" * 100)
    assert kept_capture(Plan()) is None
