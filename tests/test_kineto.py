"""Profiler files of every kind become traces; every repair is made and said; nothing bad gets through silently."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_analysis import relaxed
from typer.testing import CliRunner

from labkit import analysis, kineto
from labkit.cli import app
from labkit.kineto.cut import last_event_end
from labkit.kineto.file import read_file
from labkit.kineto.words import op_of
from labkit.trace import TraceError, load

SHARED = Path(__file__).resolve().parents[2] / "shared" / "traces"
handed = pytest.mark.skipif(not SHARED.is_dir(), reason="the handed profiler files are not here")


# ---- the handed files

REFERENCE = [
    ("rank3_of_8_nccl", 3, 62_119, 234_760, 86_525, 47.03),
    ("rank1_of_2_nccl_216k_events", 1, 643_612, 496_485, 256_572, 0.0),
    ("rank0_of_2_nccl_fields", 0, 338_781, 75_169, 21_636, 14.31),
    ("rank0_of_128", 0, 321_378, 106_252, 172_428, 11.81),
    ("rank1_of_128", 1, 328_671, 135_548, 136_455, 20.05),
    ("amd_mi250_no_distributed_info", 0, 8_780, 96, 35, None),
]
"""name, rank, idle, compute, non-compute in us, overlap in percent: HolisticTraceAnalysis 0.5.0."""


@handed
@pytest.mark.parametrize(("name", "rank", "idle", "compute", "other", "overlap"), REFERENCE)
def test_breakdown_equals_the_reference(name, rank, idle, compute, other, overlap):
    trace = kineto.read(SHARED / f"{name}.json.gz")
    (row,) = analysis.temporal_breakdown(trace).to_dicts()
    assert (row["rank"], row["idle_ns"], row["compute_ns"], row["non_compute_ns"]) == (
        *(rank, idle * 1000),
        *(compute * 1000, other * 1000),
    )
    if overlap is None:
        assert row["overlap_percent"] is None
    else:
        assert row["overlap_percent"] == pytest.approx(overlap, abs=0.01)


@handed
def test_fields_of_collectives_are_read():
    trace = kineto.read(SHARED / "rank0_of_2_nccl_fields.json.gz")
    first = trace.of("sync").filter(pl.col("op") == "all_reduce").row(0, named=True)
    assert (first["size_bytes"], first["dtype"], first["group"]) == (8_196_000, "float32", [0, 1])
    assert set(trace.of("sync")["op"]) == {"all_reduce", "broadcast"}


@handed
def test_kernels_that_hide_their_op_are_named_by_their_call():
    trace = kineto.read(SHARED / "rank3_of_8_nccl.json.gz")  # all_to_all runs as ncclKernel_SendRecv
    assert set(trace.of("sync")["op"]) == {"all_to_all", "all_reduce"}


@handed
def test_files_without_kernels_show_the_cpu():
    trace = kineto.read(SHARED / "rank34_of_300_gloo_cpu_only.json.gz")
    assert trace.of("sync").height == 10
    assert trace.of("sync")["group"].list.len().unique().to_list() == [300]
    assert any("no GPU kernels" in note for note in trace.meta.notes)
    other = kineto.read(SHARED / "no_rank_field_cpu.json.gz")
    assert any("does not say its rank: taken as rank 0" in note for note in other.meta.notes)


@handed
def test_two_ranks_of_one_job_match():
    trace = kineto.read([SHARED / "rank0_of_128.json.gz", SHARED / "rank1_of_128.json.gz"])
    assert sorted(trace.events["rank"].unique()) == [0, 1]
    assert (analysis.collectives(trace)["found"] == 2).all()
    assert any("of 128 ranks" in note for note in trace.meta.notes)


@handed
@pytest.mark.parametrize("share", [0.3, 0.9, 0.99999])
def test_a_handed_file_cut_off_keeps_what_is_whole(share, tmp_path):
    text = gzip.decompress((SHARED / "rank0_of_128.json.gz").read_bytes())
    cut = tmp_path / "rank0.json"
    cut.write_bytes(text[: int(len(text) * share)])
    whole, part = read_file(SHARED / "rank0_of_128.json.gz"), read_file(cut)
    assert part.spans.equals(whole.spans.filter(pl.col("event") < part.num_events))
    assert part.num_events >= share * whole.num_events * 0.8
    assert "cut off at byte" in part.notes[-1]


# ---- hand-made files


def span(name: str, ts: float, dur: float, *, cat: str = "cpu_op", pid: object = 100, **args) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "args": args}


def launch(correlation: int, ts: float, *, pid: int = 100) -> dict:
    return span("cudaLaunchKernel", ts, 1, cat="cuda_runtime", pid=pid, correlation=correlation)


def kernel(name: str, ts: float, dur: float, correlation: int, *, pid: object = 0, **args) -> dict:
    return span(name, ts, dur, cat="kernel", pid=pid, correlation=correlation, stream=7, **args)


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PARAMS = {
    "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 250, "Out msg nelems": 250,
    "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Process Group Description": "default_pg",
}  # fmt: skip


def rank_events(*, begin: float = 1000.0, pid: int = 100, gpu: object = 0, first: int = 1) -> list[dict]:
    """One step from `begin`: compute 0 to 40 us, all_reduce 30 to 70."""
    return [
        span("ProfilerStep#5", begin, 90, cat="user_annotation", pid=pid),
        launch(first, begin, pid=pid),
        kernel("gemm", begin, 40, first, pid=gpu),
        launch(first + 1, begin + 20, pid=pid),
        kernel(ALL_REDUCE, begin + 30, 40, first + 1, pid=gpu, **PARAMS),
    ]


def document(events: list[dict], rank: int | None = 0, **head) -> dict:
    info = {"backend": "nccl", "world_size": 2} | ({"rank": rank} if rank is not None else {})
    return {"schemaVersion": 1, "distributedInfo": info, **head, "traceEvents": events}


@pytest.fixture
def put(tmp_path):
    """Write a file and give its path."""

    def write(content: object, name: str = "trace.json") -> Path:
        path = tmp_path / name
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def row_of(trace, rank: int = 0) -> tuple:
    rows = analysis.temporal_breakdown(trace).filter(pl.col("rank") == rank)
    return rows.select("idle_ns", "compute_ns", "non_compute_ns", "exposed_sync_ns", "overlap_percent").row(0)


USUAL = (0, 40_000, 30_000, 30_000, 25.0)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_usual_file(put, name):
    trace = kineto.read(put(document(rank_events()), name))
    assert row_of(trace) == USUAL
    assert trace.meta.source == "imported"
    (sync,) = trace.of("sync").to_dicts()
    assert (sync["op"], sync["size_bytes"], sync["dtype"], sync["group"], sync["step"]) == (
        *("all_reduce", 1000),
        *("float32", [0, 1], 5),
    )
    assert trace.events["start_ns"].min() == 0
    assert trace.of("kernel")["layer"].to_list() == ["gemm"]


def test_an_imported_trace_is_saved_and_read(put, tmp_path):
    trace = kineto.read(put(document(rank_events())))
    again = load(trace.save(tmp_path / "t.parquet"))
    assert again.events.equals(trace.events)
    assert again.meta == trace.meta


def test_modules_become_layers(put):
    module = span("nn.Module: Linear_0", 1001, 5, cat="python_function")
    trace = kineto.read(put(document([*rank_events(), module])))
    assert trace.of("forward")["layer"].to_list() == ["Linear_0"]
    assert row_of(trace) == USUAL


# ---- repairs


def note_of(trace) -> str:
    return "\n".join(trace.meta.notes)


def test_missing_rank_from_the_files_name(put):
    trace = kineto.read(put(document(rank_events(), rank=None), "job_rank-7.json"))
    assert trace.events["rank"].unique().to_list() == [7]
    assert "rank 7, from the file's name" in note_of(trace)


def test_missing_ranks_are_the_lowest_free_ones(put):
    paths = [put(document(rank_events(), rank), f"{name}.json") for rank, name in ((None, "a"), (0, "b"), (None, "c"))]
    trace = kineto.read(paths)
    assert sorted(trace.events["rank"].unique()) == [0, 1, 2]
    assert "a.json: does not say its rank: taken as rank 1" in note_of(trace)


def test_a_rank_that_comes_twice(put):
    paths = [put(document(rank_events(), 0), name) for name in ("a.json", "b.json")]
    trace = kineto.read(paths)
    assert sorted(trace.events["rank"].unique()) == [0, 1]
    assert "b.json: says rank 0 like another one: taken as rank 1" in note_of(trace)


def test_given_ranks_win(put):
    paths = [put(document(rank_events(), 0), name) for name in ("a.json", "b.json")]
    trace = kineto.read(paths, ranks=[1, 0])
    assert sorted(trace.events["rank"].unique()) == [0, 1]
    assert not any("taken as" in note for note in trace.meta.notes)


def test_a_given_rank_that_the_job_does_not_have_is_refused(put):
    path = put(document(rank_events(), 0))
    with pytest.raises(TraceError, match=r"trace.json: rank 2, but its job has 2 ranks: give one from 0 to 1"):
        kineto.read(path, ranks=[2])
    result = CliRunner().invoke(app, ["analyze", str(path), "--rank", "500"])
    assert (result.exit_code, "its job has 2 ranks" in result.output) == (2, True)


def test_a_file_whose_rank_its_job_does_not_have_says_so(put):
    assert "trace.json: rank 2, but its job has 2 ranks" in note_of(kineto.read(put(document(rank_events(), 2))))


@pytest.mark.parametrize(
    ("ranks", "message"), [([1], "1 ranks given for 2"), ([1, 1], "another rank"), ([0, -1], "rank -1")]
)
def test_given_ranks_are_checked(put, ranks, message):
    paths = [put(document(rank_events(), 0), name) for name in ("a.json", "b.json")]
    with pytest.raises(TraceError, match=message):
        kineto.read(paths, ranks=ranks)


def test_times_in_ns_are_told_by_their_size(put):
    events = [e | {"ts": int(1.7e18) + int(e["ts"]) * 1000, "dur": e["dur"] * 1000} for e in rank_events()]
    trace = kineto.read(put(document(events)))
    assert row_of(trace) == USUAL
    assert "times are in ns" in note_of(trace)


def test_us_and_ns_in_one_file(put):
    in_us, in_ns = rank_events(begin=1.7e15), rank_events(begin=1.7e15)
    in_ns = [e | {"ts": int(e["ts"]) * 1000, "dur": e["dur"] * 1000} for e in in_ns]
    mixed = [a if i % 2 else b for i, (a, b) in enumerate(zip(in_us, in_ns, strict=True))]
    assert row_of(kineto.read(put(document(mixed)))) == USUAL


def test_fractions_of_us_are_kept_to_the_ns(put):
    events = [kernel("gemm", 4_458_676_522_690.655, 156.777, 1), kernel("gemm", 4_458_676_522_900.0, 1, 2)]
    trace = kineto.read(put(document(events)))
    first = trace.of("kernel").row(0, named=True)
    assert (first["start_ns"], first["end_ns"]) == (655, 157_432)


@given(cut=st.integers(0, 3000))
@relaxed
def test_the_last_complete_event_is_found(cut):
    events = [*rank_events(), kernel('odd "}]" \\', 2000, 1, 9)]
    texts = [json.dumps(event, indent=1) for event in events]
    data = ", ".join(texts)[:cut].encode()
    ends = [len(", ".join(texts[: i + 1])) for i in range(len(texts))]
    assert last_event_end(data) == (max((end for end in ends if end <= len(data)), default=None), None)


def test_a_cut_off_file_says_so(put):
    data = json.dumps(document(rank_events())).encode()
    trace = kineto.read(put(data[:-30]))
    assert trace.of("kernel").height == 1
    assert "all 4 complete events kept" in note_of(trace)


def test_a_gz_that_ends_early(tmp_path):
    packed = gzip.compress(json.dumps(document(rank_events() * 50)).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[:-20])
    assert "stream ends early" in note_of(kineto.read(path))


def test_a_list_at_top_level(put):
    trace = kineto.read(put(rank_events()))
    assert row_of(trace) == USUAL
    assert "a list at top level" in note_of(trace)


def test_no_collectives_is_said(put):
    trace = kineto.read(put(document(rank_events()[:3])))
    assert row_of(trace) == (0, 40_000, 0, 0, None)
    assert "no collectives" in note_of(trace)


def test_collectives_known_only_by_their_kernels(put):
    bare = [e | {"args": {"correlation": e["args"].get("correlation")}} for e in rank_events()]
    trace = kineto.read(put(document(bare)))
    (sync,) = trace.of("sync").to_dicts()
    assert (sync["op"], sync["group"], sync["size_bytes"]) == ("all_reduce", [0, 1], None)
    assert "taken as all 2 ranks" in note_of(trace)


def test_collectives_known_only_by_their_calls(put):
    call = span("record_param_comms", 1010, 20, **PARAMS)
    trace = kineto.read(put(document([span("aten::mm", 1000, 5), call])))
    (sync,) = trace.of("sync").to_dicts()
    assert (sync["op"], sync["size_bytes"], sync["end_ns"] - sync["start_ns"]) == ("all_reduce", 1000, 20_000)


def test_only_the_outermost_operators_are_work(put):
    nested = [span("aten::linear", 1000, 10), span("aten::mm", 1002, 5), span("aten::relu", 1011, 2)]
    trace = kineto.read(put(document(nested)))
    assert trace.of("kernel")["layer"].to_list() == ["aten::linear", "aten::relu"]


def two_clocks(put, ahead_us: float) -> list[Path]:
    """Three all-reduces that end together, rank 1's clock `ahead_us` ahead; it comes 5 us later to each."""
    paths = []
    for rank in (0, 1):
        add = rank * ahead_us
        calls = [kernel(ALL_REDUCE, 1000 * i + add + 5 * rank, 40 - 5 * rank, i, **PARAMS) for i in (1, 2, 3)]
        paths.append(put(document(calls, rank), f"r{rank}.json"))
    return paths


def test_clocks_are_aligned_by_the_ends_of_collectives(put):
    trace = kineto.read(two_clocks(put, 70_000))
    assert analysis.collectives(trace)["skew_ns"].to_list() == [5000] * 3
    assert analysis.collectives(trace)["straggler"].to_list() == [1] * 3
    assert "rank 1: clock 70.00 ms ahead of rank 0's" in note_of(trace)


def test_clocks_that_agree_are_left_alone(put):
    assert "clock" not in note_of(kineto.read(two_clocks(put, 20)))


def test_base_times_are_added(put):
    paths = [put(document(rank_events(begin=begin), r, baseTimeNanoseconds=base), f"{r}.json")
             for r, begin, base in ((0, 5000.0, 10**9), (1, 4000.0, 10**9 + 10**6))]  # fmt: skip
    trace = kineto.read(paths)
    assert trace.of("kernel").group_by("rank").agg(pl.col("start_ns").min())["start_ns"].unique().to_list() == [0]


@pytest.mark.parametrize("first", [1, 100])
def test_a_merged_file_is_taken_apart(put, first):
    """Two processes with a GPU each; ids may collide (both from 1)."""
    events = rank_events(pid=100, gpu=0) + rank_events(pid=200, gpu=1, first=first, begin=1003.0)
    trace = kineto.read(put(document(events, rank=None)))
    assert row_of(trace, 0) == row_of(trace, 1) == USUAL
    assert "2 processes in one file" in note_of(trace)


def test_events_without_usable_times_are_left_out_and_said(put):
    bad = [kernel("gemm", 1000, -5, 3), kernel("gemm", 2**63, 5, 4), kernel("gemm", 1000, "x", 5)]
    trace = kineto.read(put(document(rank_events() + bad)))
    assert row_of(trace) == USUAL
    assert "3 events without a usable start or duration left out (first: event 5)" in note_of(trace)


def test_nan_and_control_characters_are_read(put):
    text = json.dumps(document(rank_events())).replace('"name": "gemm"', '"name": "ge\tmm"')
    text = text[:-2] + ', {"ph": "X", "cat": "kernel", "name": "k", "ts": NaN, "dur": 1}]}'
    trace = kineto.read(put(text.encode()))
    assert row_of(trace) == USUAL


def test_events_of_a_wrong_form_are_left_out_and_said(put):
    trace = kineto.read(put(document([*rank_events(), "what", {"ph": 3, "args": []}])))
    assert row_of(trace) == USUAL
    assert "2 of 7 events of a wrong form left out" in note_of(trace)


def test_entries_of_other_kinds_are_skipped_but_counted(put):
    """Flow arrows, instants and names; what they hold does not matter."""
    others = [{"ph": "f", "cat": "ac2g", "name": ["odd"], "ts": {}}, {"name": "thread_name", "ph": "M"}, {"cat": "x"}]
    events = [other for event in rank_events() for other in (*others, event)]
    file = read_file(put(document(events)))
    assert file.spans["event"].to_list() == [3, 7, 11, 15, 19]
    assert file.num_events == 20
    assert row_of(kineto.read(put(document(events)))) == USUAL
    assert "wrong form" not in note_of(kineto.read(put(document(events))))


def test_whole_and_broken_times_side_by_side_are_exact(put):
    """us as whole numbers and as fractions, and whole ns, which a float could not hold."""
    times = [1_700_000_000_000_001, 1_700_000_000_000_002.5, 1_700_000_000_000_003_007]
    file = read_file(put(document([kernel("gemm", time, 1, i) for i, time in enumerate(times)])))
    first = 1_700_000_000_000_001_000
    assert (file.spans["start_ns"] - first).to_list() == [0, 1_500, 2_007]
    assert (file.spans["end_ns"] - file.spans["start_ns"]).to_list() == [1000, 1000, 1]
    assert "1 times are in ns" in file.notes[0]


@pytest.mark.parametrize("at_once", [0, 3, 7])
def test_spans_come_to_the_same_table_however_many_at_once(put, monkeypatch, at_once):
    bad, odd = kernel("gemm", 1000, -5, 3), span("aten::mm", 1010.5, 1, pid="a process", **PARAMS)
    path = put(document([*rank_events(), bad, odd] * 3))
    whole = read_file(path)
    monkeypatch.setattr("labkit.kineto.table._AT_ONCE", at_once)
    monkeypatch.setattr("labkit.kineto.source._PIECE", 100)
    parts = read_file(path)
    assert parts.spans.equals(whole.spans)
    assert (parts.notes, parts.args.keys()) == (whole.notes, whole.args.keys())
    assert "(first: event 5)" in parts.notes[0]


def test_a_kernel_belongs_to_the_first_launch_of_its_number_in_time(put):
    """The file's order is another one."""
    steps = [span(f"ProfilerStep#{n}", 1000.0 * n, 900, cat="user_annotation") for n in (1, 2)]
    trace = kineto.read(put(document([launch(1, 2100), *steps, kernel("gemm", 2200, 5, 1), launch(1, 1100)])))
    assert trace.of("kernel")["step"].to_list() == [1]


def test_names_with_markup_stay_text(put):
    events = [*rank_events(), kernel("<script>alert(1)</script>", 1000, 1, 8)]
    assert "<script>alert(1)</script>" in kineto.read(put(document(events))).of("kernel")["layer"].to_list()


# ---- names


@pytest.mark.parametrize(
    ("name", "op"),
    [
        (ALL_REDUCE, "all_reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "send_recv"),
        ("nccl:_all_gather_base", "all_gather"),
        ("gloo:reduce_scatter", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("nccl:send 0->1", "send"),
        ("nothing", None),
    ],
)
def test_names_of_collectives(name, op):
    assert op_of(name) == op


# ---- commands


def test_import_then_analyze(put, tmp_path):
    paths = [str(put(document(rank_events(), None), name)) for name in ("a.json", "b.json.gz")]
    out = tmp_path / "t.parquet"
    result = CliRunner().invoke(app, ["import", *paths, "--out", str(out), "--rank", "1", "--rank", "0"])
    assert result.exit_code == 0, result.output
    for given_files in ([str(out)], paths):
        found = json.loads(CliRunner().invoke(app, ["analyze", *given_files, "--json"]).output)
        assert [row["compute_ns"] for row in found["ranks"]] == [40_000, 40_000]


def test_import_says_what_is_wrong(put):
    result = CliRunner().invoke(app, ["import", str(put(b"no json"))])
    assert result.exit_code == 2
    assert "is no profiler file" in result.output
