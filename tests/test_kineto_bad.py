"""Files that are broken, hostile or no profiler's: refused by name and place, or repaired and said; memory bounded."""

import gzip
import html
import json
import re
import tracemalloc
import zlib

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_kineto import ALL_REDUCE, PARAMS, USUAL, document, kernel, note_of, put, rank_events, row_of, span

from labkit import analysis, explain, kineto, report
from labkit.kineto import events as kineto_events
from labkit.kineto import source
from labkit.trace import Trace, TraceError

__all__ = ["put"]  # a fixture

# ---- refusals


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"<html>no</html>", "it starts with '<html>no"),
        (b"PAR1", "it starts with"),
        (b'{"a": 1}', "no list `traceEvents`"),
        (b'{"traceEvents": 5}', "no list `traceEvents`"),
        (b'{"traceEvents": [}', "is not JSON"),
        (b'{"traceEvents": [{"ph"', "before its first complete event"),
        (b'{"traceEvents": []}', "holds no spans"),
        (b"[" * 1_000_000, "nested too deeply|before its first complete event"),
        (b'{"traceEvents": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", "nested too deeply|no list|no spans"),
        (b"\x1f\x8b\x08garbage", "damaged|is empty|it starts with"),
    ],
)
def test_what_is_no_profiler_file_is_refused_by_name(put, data, message):
    path = put(data)
    with pytest.raises(TraceError, match=message) as caught:
        kineto.read(path)
    assert str(path) in str(caught.value)


def test_missing_files_and_none(tmp_path):
    with pytest.raises(TraceError, match="no profiler file given"):
        kineto.read([])
    with pytest.raises(TraceError, match="cannot read"):
        kineto.read(tmp_path / "no.json")


@pytest.mark.parametrize(
    ("filling", "message"),
    [
        (b" ", r"unpacks to more than [\d,]+ bytes from [\d,]+:"),
        (b"[", r"more than [\d,]+ bytes"),
        (b'{"name": "%b"},' % (b"x" * 5000), "unpacks to more than"),
    ],
)
def test_a_bomb_is_refused_in_bounded_memory_with_its_size(tmp_path, monkeypatch, filling, message):
    """Hundreds of MiB in one; only a part of it is ever held. With limits a tenth of the real ones, to be quick."""
    monkeypatch.setattr(source, "_MAX_RATIO", 40)
    monkeypatch.setattr(source, "_RATIO_FROM", 6 << 20)
    monkeypatch.setattr(kineto_events, "MOST_AT_ONCE", 4 << 20)
    packer, path = zlib.compressobj(9, wbits=31), tmp_path / "bomb.json.gz"
    first = packer.compress(b'{"traceEvents": [') + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(filling * ((1 << 24) // len(filling))) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(first + block * 16)  # after a full flush the stream starts anew: the block may come again
    tracemalloc.start()
    with pytest.raises(TraceError, match=message) as caught:
        kineto.read(path)
    assert str(path) in str(caught.value)
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"traceEvents": [{"ph": "X"}, {"ph": "X" "cat": 1}, {}]}', r"is not JSON: .* at byte 41"),
        ('{"traceEvents": [{"ph": "X"}} , {}]}', "is not JSON: a stray } at byte 28"),
        ('[{"ph": "X"}, {"a": ' + "[" * 10**6 + "]" * 10**6 + "}]", "nested too deeply after byte"),
        ('{"a": ' * 10**6, "nested too deeply"),
        ('[{"ph": "X", "ts": ' + "1" * 5000 + "}]", "cannot be read after byte"),
        ('{"x": {"traceEvents": [1]}}', "no list `traceEvents`"),
        ('{"traceEvents": {"a": []}}', "no list `traceEvents`"),
        ('{"note": "\\"traceEvents\\": [", "b": 1', "is not JSON"),
        ('"traceEvents": [', "it starts with '\"traceEvents\": \\['"),
    ],
    ids=range(9),
)
def test_the_file_and_the_place_are_named(put, text, message):
    path = put(text.encode())
    with pytest.raises(TraceError, match=message) as caught:
        kineto.read(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400


def test_an_event_longer_than_allowed_is_refused(put, monkeypatch):
    monkeypatch.setattr(kineto_events, "MOST_AT_ONCE", 1 << 22)
    with pytest.raises(TraceError, match="more than 4,194,304 bytes without a whole event after byte"):
        kineto.read(put(document([kernel("x" * (1 << 24), 1000, 1, 1)])))


# ---- repairs


def test_strings_of_megabytes_are_read(put):
    trace = kineto.read(put(document([*rank_events(), kernel("x" * 9_000_000, 1000, 1, 8)])))
    assert row_of(trace) == USUAL
    assert 9_000_000 in trace.of("kernel")["layer"].str.len_bytes()


@pytest.mark.parametrize(
    ("damage", "num_bad"),
    [
        ({"dur": -1}, 1), ({"dur": float("nan")}, 1), ({"ts": float("inf")}, 1), ({"ts": 2**63 - 1}, 1),
        ({"ts": -(2**63)}, 1), ({"ts": 10**300}, 1), ({"ts": None}, 1), ({"ts": True}, 1), ({"dur": "2"}, 0),
        ({"ts": 1e308}, 1), ({"dur": 1e300}, 1),
    ],
    ids=str,
)  # fmt: skip
def test_times_that_are_none(put, damage, num_bad):
    trace = kineto.read(put(document([*rank_events(), span("aten::mm", 1010, 1) | damage])))
    said = [note for note in trace.meta.notes if "left out" in note]
    assert len(said) == num_bad and all("event" in note for note in said)
    assert trace.events["end_ns"].max() < 2**62


def test_a_list_closed_and_cut_behind(put):
    data = json.dumps(document(rank_events()))[:-1] + ', "displayTimeUnit": "m'
    trace = kineto.read(put(data.encode()))
    assert row_of(trace) == USUAL
    assert "after the last event, are not JSON: left out" in note_of(trace)


def test_the_rank_may_stand_behind_the_events(put):
    events = {"traceEvents": rank_events(), "distributedInfo": {"rank": 1, "world_size": 2}}
    assert kineto.read(put(events)).events["rank"].unique().to_list() == [1]


def test_a_comma_too_many_and_a_byte_order_mark(put):
    data = b"\xef\xbb\xbf" + json.dumps(document(rank_events())).encode()[:-2] + b" ,\n] }"
    assert row_of(kineto.read(put(data))) == USUAL


def test_half_characters_in_names(put):
    data = json.dumps(document([*rank_events(), kernel("HERE", 1000, 1, 8)])).replace(
        "HERE", r"\ud800 \\ud800 \ud83d\ude00"
    )
    assert "\ufffd \\ud800 \U0001f600" in kineto.read(put(data.encode())).of("kernel")["layer"].to_list()


@pytest.mark.parametrize("size", [40, 1000, 1 << 16])
def test_events_across_pieces_are_whole(put, monkeypatch, size):
    """However the file falls into pieces; names hold what looks like an event's end."""
    odd = 'a}, {"b": "\\'
    events = [kernel(f"{odd}{i}", 1000 + i, 1, i, nested=[{"a": {}}, {"b": [{}, {}]}]) for i in range(200)]
    monkeypatch.setattr(source, "_PIECE", size)
    monkeypatch.setattr(source, "_PACKED_PIECE", size)
    for name in ("t.json", "t.json.gz"):
        trace = kineto.read(put(document(events), name))
        assert trace.of("kernel")["layer"].to_list() == [event["name"] for event in events]


def test_files_of_different_jobs_are_said(put):
    other = document(rank_events(begin=9e9), 1) | {"distributedInfo": {"rank": 1, "world_size": 8}}
    trace = kineto.read([put(document(rank_events(), 0), "a.json"), put(other, "b.json")])
    assert "files of jobs of different sizes: 2, 8 ranks" in note_of(trace)


def test_steps_of_different_numbers_are_kept(put):
    """Rank 1 began to record two steps later; numbers are the profiler's."""
    later = [event | ({"name": "ProfilerStep#7"} if "Step" in event["name"] else {}) for event in rank_events()]
    trace = kineto.read([put(document(rank_events(), 0), "a.json"), put(document(later, 1), "b.json")])
    assert trace.of("step").sort("rank")["step"].to_list() == [5, 7]
    assert analysis.temporal_breakdown(trace).height == 2


def test_no_name_reaches_a_page_as_markup(put):
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    events = [*rank_events(), kernel(evil, 1000, 1, 8), span(f"nn.Module: {evil}", 1001, 5, cat="python_function")]
    trace = kineto.read(put(document(events)))
    assert evil in trace.of("kernel")["layer"].to_list()
    for text in (analysis.all_notes(trace), report.describe(trace), explain.describe(trace)):
        assert html.escape(evil) in str(text) or "<script" not in str(text)


# ---- anything at all

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from(["ProfilerStep#1", "ncclDevKernel_X", "nn.Module: A", "[0, 1]", "X", 2**63, 1.7e18, -1, "kernel"]),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
BASE = json.dumps(
    document([*rank_events(), span("nccl:all_reduce", 1020, 2, **PARAMS), kernel(ALL_REDUCE, 1080, 5, 9)])
)
LEAVES = [found.span(1) for found in re.finditer(r'[:\[,] ("[^"]*"(?!:)|[-\d.]+)(?=[,\]}])', BASE)]


@st.composite
def mutated(draw) -> bytes:
    """The usual file with some values replaced, then some bytes; cut or doubled somewhere."""
    text = BASE
    for start, end in sorted(draw(st.sets(st.sampled_from(LEAVES), max_size=4)), reverse=True):
        text = text[:start] + json.dumps(draw(ODD)) + text[end:]
    data = bytearray(text.encode())
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from(b'{}[],:"\\0e-\x00\xff \n'))
    if draw(st.booleans()):
        begin, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        data[begin:end] = data[begin:end] * draw(st.integers(0, 2))
    return gzip.compress(bytes(data))[: draw(st.integers(1, 10**6))] if draw(st.integers(0, 9)) == 0 else bytes(data)


@given(mutated())
@example(BASE.encode())
@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_a_mutated_file_is_a_trace_or_an_error_that_names_it(tmp_path, data):
    path = tmp_path / "rank0.json"
    path.write_bytes(data)
    try:
        trace = kineto.read(path)
    except TraceError as error:
        assert str(path) in str(error) or "nothing to show" in str(error)
        return
    assert isinstance(trace, Trace)
    assert (trace.events["end_ns"] >= trace.events["start_ns"]).all()
    analysis.temporal_breakdown(trace)
    assert report.describe(trace)
