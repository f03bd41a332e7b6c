"""Exports: what is in the files, that other tools read the same numbers from them, and what is refused."""

import csv
import gzip
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import labkit
from labkit import analysis, kineto
from labkit.cli import app
from labkit.formats.tracks import MAX_TRACKS, nested_tracks
from labkit.trace import Meta, from_events, load
from labkit.view import export_frames, export_page

sys.path.insert(0, str(Path(__file__).parent / "view"))
import example_traces as examples
import message_traces
import value_traces

ASSET = Path(__file__).parents[1] / "assets" / "pipeline_1f1b.parquet"
MS = 1_000_000
RUNNER = CliRunner()


def invoke(*arguments: object):
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


def two_ranks():
    """Rank 0 sends to rank 1; then both reduce, rank 1 coming last. One span sticks out of another."""
    message = dict(kind="sync", axis="pp", seq=0, size_bytes=8, dtype="float32")
    reduce = dict(kind="sync", op="all_reduce", axis="dp", group=[0, 1], seq=0, size_bytes=4, dtype="float32")
    return from_events(
        [
            dict(rank=0, kind="stage_forward", stage=0, microbatch=3, step=0, start_ns=0, end_ns=10_001),
            dict(rank=0, kind="forward", layer="fc0", step=0, start_ns=1_000, end_ns=9_000),
            dict(rank=0, kind="optimizer", step=0, start_ns=8_000, end_ns=12_000),
            dict(rank=0, op="send", peer=1, group=[0, 1], start_ns=20_000, end_ns=21_000, **message),
            dict(rank=1, op="recv", peer=0, group=[0, 1], start_ns=5_000, end_ns=25_000, **message),
            dict(rank=0, start_ns=30_000, end_ns=50_000, **reduce),
            dict(rank=1, start_ns=40_000, end_ns=50_000, activation_bytes=64, **reduce),
        ],
        Meta("paced", plan={"task": "digits", "pp": 2, "dp": 1, "tp": 1}, num_ranks=2, notes=("a note",)),
    )


# ---- Perfetto


def perfetto(trace, tmp_path, name: str = "t.json") -> dict:
    data = labkit.export(trace, tmp_path / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)


def test_ranks_and_lanes_have_names_and_say_where_times_come_from(tmp_path):
    made = perfetto(two_ranks(), tmp_path, "t.json.gz")
    named = {(e["name"], e["pid"], e.get("tid")): e["args"].get("name") for e in made["traceEvents"] if e["ph"] == "M"}
    assert named["process_name", 1, None] == "rank 0 · pp 0 (paced)"
    lanes = [name for (what, pid, _), name in named.items() if what == "thread_name" and pid == 1]
    assert lanes == ["compute", "compute, 2", "sync dp", "sync pp"]
    assert made["otherData"]["times"].startswith("paced: a real run")
    assert made["otherData"]["notes"] == ["a note"]


def test_spans_keep_times_names_and_facts(tmp_path):
    spans = [e for e in perfetto(two_ranks(), tmp_path)["traceEvents"] if e["ph"] == "X"]
    first = next(e for e in spans if e["name"] == "forward 3")
    assert (first["ts"], first["dur"], first["cat"]) == (0.0, 10.001, "stage_forward")
    assert first["args"] == {"step": 0, "microbatch": 3, "stage": 0}
    received = next(e for e in spans if e["name"] == "recv")
    assert received["args"] == {"op": "recv", "axis": "pp", "group": [0, 1], "peer": 0, "size_bytes": 8,
                                "dtype": "float32", "seq": 0}  # fmt: skip
    assert len({e["tid"] for e in spans if e["pid"] == 1 and e["cat"] in ("stage_forward", "forward")}) == 1


def test_arrows_go_from_send_to_recv_and_from_the_last_rank_of_a_collective(tmp_path):
    events = perfetto(two_ranks(), tmp_path)["traceEvents"]
    ends = {ph: sorted((e["id"], e["name"], e["pid"], e["ts"]) for e in events if e["ph"] == ph) for ph in "sf"}
    assert ends["s"] == [(1, "0 to 1", 1, 20.0), (2, "all_reduce: the last to come", 2, 40.0)]
    assert ends["f"] == [(1, "0 to 1", 2, 24.999), (2, "all_reduce: the last to come", 1, 49.999)]
    spans = [e for e in events if e["ph"] == "X"]
    for end in (e for e in events if e["ph"] in "sf"):  # a viewer ties an arrow to the span around its end
        on = [e for e in spans if e["tid"] == end["tid"] and e["ts"] <= end["ts"] < e["ts"] + e["dur"]]
        assert [e["cat"] for e in on] == ["sync"]


def test_bytes_held_are_counters(tmp_path):
    (counter,) = (e for e in perfetto(two_ranks(), tmp_path)["traceEvents"] if e["ph"] == "C")
    assert (counter["pid"], counter["ts"]) == (2, 50.0)
    assert counter["args"] == {"param": 0, "grad": 0, "optimizer": 0, "activation": 64}


def test_every_event_of_a_capture_is_there_once(tmp_path):
    trace = load(ASSET)
    spans = [e for e in perfetto(trace, tmp_path)["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == trace.events.height
    arrows = [e for e in perfetto(trace, tmp_path)["traceEvents"] if e["ph"] == "s"]
    assert len(arrows) == analysis.messages(trace).height > 0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40))
def test_on_a_track_spans_nest_or_follow_each_other(spans):
    ordered = sorted(((start, start + length) for start, length in spans), key=lambda span: (span[0], -span[1]))
    tracks = nested_tracks(ordered)
    pairs = [(ordered[i], ordered[j]) for i in range(len(tracks)) for j in range(i) if tracks[i] == tracks[j]]
    if max(tracks, default=0) < MAX_TRACKS - 1:
        assert all(later[0] >= earlier[1] or later[1] <= earlier[1] for later, earlier in pairs)


def test_a_span_that_sticks_out_gets_the_next_track():
    assert nested_tracks([(0, 10), (2, 5), (7, 14), (12, 13), (14, 15)]) == [0, 0, 1, 0, 0]


# ---- tables


def test_csv_holds_every_event_and_the_source(tmp_path):
    with labkit.export(two_ranks(), tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7
    assert (rows[0]["kind"], rows[0]["microbatch"], rows[0]["times"]) == ("stage_forward", "3", "paced")
    assert rows[-1]["group"] == "0 1"


def test_parquet_is_the_trace_and_a_step_can_be_cut_out(tmp_path):
    trace = load(ASSET)
    whole, step = (load(labkit.export(trace, tmp_path / "t.parquet", step=step)) for step in (None, 1))
    assert whole.events.equals(trace.events)
    assert step.events["step"].unique().to_list() == [1]
    assert step.meta.notes[-1] == "Only step 1 of steps 0 to 1 is in this file."


# ---- profiler files


def profiled(trace, tmp_path):
    return kineto.read(sorted(labkit.export(trace, tmp_path / "profile").iterdir()))


TOTALS = ("compute_ns", "overlapped_sync_ns", "exposed_sync_ns")


@pytest.mark.parametrize(
    "make", [lambda: load(ASSET), examples.data_parallel, examples.mixed], ids=["1f1b", "dp", "3d"]
)
def test_profiler_files_give_the_same_breakdown_to_a_microsecond(make, tmp_path):
    trace = make()
    back = profiled(trace, tmp_path)
    for ours, theirs in zip(analysis.breakdown(trace).to_dicts(), analysis.breakdown(back).to_dicts(), strict=True):
        assert ours["rank"] == theirs["rank"]
        for name in TOTALS:
            assert abs(ours[name] - theirs[name]) <= 1000, name
        between_ns = theirs["window_ns"] - ours["window_ns"]  # between steps: idle, for a profiler
        assert abs(theirs["idle_ns"] - ours["idle_ns"] - between_ns) <= 3000
    assert analysis.temporal_breakdown(back)["compute_ns"].to_list() == [
        sum(row[name] for name in TOTALS[:2]) for row in analysis.breakdown(back).to_dicts()
    ]  # all in whole us, so nothing is lost to rounding


def test_profiler_files_keep_what_syncs_were(tmp_path):
    trace = message_traces.ring(4)
    syncs, back = trace.of("sync"), profiled(trace, tmp_path).of("sync")
    facts = ["rank", "op", "peer", "size_bytes", "dtype", "seq"]
    assert back.select(facts).sort(facts).equals(syncs.select(facts).sort(facts))


def test_waits_are_no_work_in_profiler_files(tmp_path):
    common = dict(rank=0, step=0)
    rows = [
        dict(kind="step", start_ns=0, end_ns=10 * MS, **common),
        dict(kind="stage_forward", start_ns=1 * MS, end_ns=8 * MS, **common),
        dict(kind="forward", layer="fc0", start_ns=1 * MS, end_ns=4 * MS, **common),
        dict(kind="wait", op="all_reduce", start_ns=5 * MS, end_ns=7 * MS, **common),
    ]
    back = profiled(from_events(rows, Meta("measured")), tmp_path)
    kernels = back.of("kernel").filter(back.of("kernel")["end_ns"] > back.of("kernel")["start_ns"])
    assert kernels.select("layer", "start_ns", "end_ns").rows() == [
        ("forward fc0", 1 * MS, 4 * MS),
        ("stage_forward", 4 * MS, 5 * MS),
        ("stage_forward", 7 * MS, 8 * MS),
    ]
    (row,) = analysis.breakdown(back).to_dicts()
    assert (row["compute_ns"], row["exposed_sync_ns"], row["idle_ns"]) == (5 * MS, 2 * MS, 3 * MS)


HANDED = Path(__file__).resolve().parents[2] / "shared" / "traces"


@pytest.mark.skipif(not HANDED.is_dir(), reason="the handed profiler files are not here")
@pytest.mark.parametrize("name", ["rank3_of_8_nccl", "rank0_of_2_nccl_fields", "amd_mi250_no_distributed_info"])
def test_an_imported_profile_survives_the_way_out_and_back(name, tmp_path):
    trace = kineto.read(HANDED / f"{name}.json.gz")
    back = profiled(trace, tmp_path)
    assert analysis.temporal_breakdown(back).equals(analysis.temporal_breakdown(trace))
    facts = ["start_ns", "end_ns", "op", "axis", "group", "size_bytes", "dtype", "seq"]
    assert back.of("sync").select(facts).equals(trace.of("sync").select(facts))


@pytest.mark.parametrize("make", [lambda: load(ASSET), examples.data_parallel], ids=["1f1b", "dp"])
def test_holistic_trace_analysis_reads_the_same_numbers(make, tmp_path):
    hta = pytest.importorskip(
        "hta.trace_analysis", reason="HolisticTraceAnalysis IS MISSING: agreement with it is NOT tested"
    )
    folder = labkit.export(make(), tmp_path / "profile")
    ours = analysis.temporal_breakdown(kineto.read(sorted(folder.iterdir()))).to_dicts()
    analyzer = hta.TraceAnalysis(trace_dir=str(folder))
    theirs = analyzer.get_temporal_breakdown(visualize=False).to_dict("records")
    overlap = analyzer.get_comm_comp_overlap(visualize=False).to_dict("records")
    for mine, other, share in zip(ours, theirs, overlap, strict=True):
        assert [mine[name] / 1000 for name in ("idle_ns", "compute_ns", "non_compute_ns")] == [
            other[name] for name in ("idle_time(us)", "compute_time(us)", "non_compute_time(us)")
        ]
        assert mine["overlap_percent"] == pytest.approx(share["comp_comm_overlap_pctg"], abs=0.01)


# ---- pages


def test_a_page_holds_the_player_and_asks_nobody(tmp_path):
    page = labkit.export(load(ASSET), tmp_path / "t.html").read_text()
    assert "default-src 'none'" in page and "{{" not in page.partition('<script type="module">')[0]
    assert "times: " in page and '"source": "paced"' in page
    assert not [line for line in page.splitlines() if "http://" in line.replace("http://www.w3.org/2000/svg", "")]


def test_one_module_serves_all_players_of_its_kind(tmp_path):
    trace = load(ASSET)
    players = [labkit.timeline(trace), labkit.mesh_grid(trace), labkit.timeline(trace, step=1)]
    page = labkit.export(players, tmp_path / "t.html").read_text()
    assert re.findall(r'^<div data-player="(\d)">', page, re.MULTILINE) == ["0", "1", "0"]
    assert re.findall(r"^labkitPlayers\[(\d)\] = ", page, re.MULTILINE) == ["0", "1"]


def test_a_page_that_is_too_big_is_refused_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(export_page, "MAX_PAGE_BYTES", 1000)
    with pytest.raises(ValueError, match=r"MiB, more than 0.*--step 0"):
        labkit.export(load(ASSET), tmp_path / "t.html")
    assert not (tmp_path / "t.html").exists()


def test_the_save_menu_gets_what_it_writes_a_page_from():
    player = labkit.timeline(load(ASSET))
    assert {"_esm", "_css", "saved"} <= set(player.keys)  # sent to the browser
    assert {"columns", "heading", "source", "notes", "looks"} <= set(player.saved) <= set(player.keys)


# ---- what is refused, before any work


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "t.svg"], ["'.svg' is no ending", ".html", "folder of profiler files"]),
        (["--out", "no/such/t.html"], ["cannot write no/such/t.html", "there is no folder"]),
        (["--out", "."], ["the folder . is not empty", "give a new folder"]),
        (["--out", "t.html", "--as", "tmeline"], ["no such player", "mesh_grid"]),
        (["--out", "t.json", "--as", "timeline"], ["--as timeline with t.json", ".html"]),
        (["--out", "t.html", "--as", "all_reduce"], ["nothing to export", "grad_sync='ring'"]),
        (["--out", "t.html", "--step", "7"], ["step 7 is not in this trace: it has steps 0 to 1"]),
        (["--out", "t.html", "--at", "1ms"], ["at_ns is the moment of a .png"]),
        (["--out", "t.html", "--theme", "blue"], ["theme 'blue'", "light, dark"]),
        (["--out", "t.png", "--at", "soon"], ["'soon' is not a time"]),
    ],
)
def test_bad_input_is_refused_in_words(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").write_text("")
    result = invoke("export", ASSET, *arguments)
    assert result.exit_code == 2
    assert [word for word in words if word not in result.stderr] == []
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_a_trace_without_events_is_refused(tmp_path):
    for name in ("t.html", "t.json", "profile"):
        with pytest.raises(ValueError, match="holds no events"):
            labkit.export(examples.empty(), tmp_path / name)


def test_a_trace_of_values_alone_is_a_table_but_no_picture(tmp_path):
    trace = value_traces.cut_layer()
    assert len(labkit.export(trace, tmp_path / "t.csv").read_text().splitlines()) == 1 + trace.events.height
    for name in ("t.html", "t.json", "profile"):
        with pytest.raises(ValueError, match="holds values, but no spans"):
            labkit.export(trace, tmp_path / name)


def test_a_player_is_no_table(tmp_path):
    with pytest.raises(ValueError, match=r"a \.json holds a trace's events: give the trace"):
        labkit.export(labkit.timeline(load(ASSET)), tmp_path / "t.json")


@pytest.mark.parametrize(("what", "words"), [([], "no players given"), (7, "int cannot be exported: give a trace")])
def test_what_cannot_be_drawn_is_told(what, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        labkit.export(what, tmp_path / "t.html")


def test_without_a_browser_the_way_out_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(export_frames, "_browser_path", lambda: None)
    with pytest.raises(ValueError, match=r"no Chromium or Chrome.*playwright install chromium.*\.html needs neither"):
        labkit.export(load(ASSET), tmp_path / "t.png")


def test_without_ffmpeg_the_way_out_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(export_frames, "_browser_path", lambda: "chromium")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"ffmpeg, which is not on the PATH: install it, or export \.gif"):
        labkit.export(load(ASSET), tmp_path / "t.mp4")


def test_an_existing_file_stays_whole_when_the_export_fails(tmp_path, monkeypatch):
    target = tmp_path / "t.json"
    target.write_text("old")
    monkeypatch.setattr("labkit.formats.perfetto._counters", lambda trace: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        labkit.export(two_ranks(), target)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_the_shell_writes_what_it_says(tmp_path):
    for name in ("t.html", "t.json.gz", "t.csv", "t.parquet", "profile"):
        result = invoke("export", ASSET, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert f"saved to {tmp_path / name}" in result.stdout.replace("\n", "")
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == [f"rank{k}.json.gz" for k in range(4)]
    result = invoke("export", *sorted((tmp_path / "profile").iterdir()), "--out", tmp_path / "again.json")
    assert result.exit_code == 0, result.output


# ---- pictures


needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="CHROMIUM IS MISSING: pictures are NOT tested"
)


@needs_browser
@pytest.mark.browser
def test_a_picture_is_of_the_moment_asked_for(tmp_path):
    image = pytest.importorskip("PIL.Image")
    trace = load(ASSET)
    opened, middle, dark = (
        image.open(labkit.export(trace, tmp_path / f"{name}.png", **options)).convert("RGB")
        for name, options in {
            "opened": {},
            "middle": {"at_ns": 600 * MS},
            "dark": {"at_ns": 600 * MS, "theme": "dark"},
        }.items()
    )
    assert opened.width == middle.width == 2 * (1100 - 2 * 16 - 2)  # two pixels for each of the page's; card's border
    assert opened.getpixel((2, 2)) == (255, 255, 255) and dark.getpixel((2, 2)) == (26, 29, 35)
    assert middle.height > opened.height  # the time stands below
    assert opened.tobytes() != middle.crop((0, 0, *opened.size)).tobytes()


@needs_browser
@pytest.mark.browser
def test_a_gif_runs_from_start_to_end_and_is_always_the_same(tmp_path):
    image = pytest.importorskip("PIL.Image")
    players = [labkit.timeline(load(ASSET)), labkit.mesh_grid(load(ASSET))]
    labkit.link_players(*players)
    first, second = (labkit.export(players, tmp_path / f"{name}.gif", seconds=0.5) for name in "ab")
    film = image.open(first)
    assert film.n_frames == 6
    assert first.read_bytes() == second.read_bytes()
    frames = [film.seek(k) or film.convert("RGB").tobytes() for k in range(6)]
    assert len(set(frames)) == 6
    assert {film.seek(k) or film.convert("RGB").getpixel((2, 2)) for k in range(6)} == {(255, 255, 255)}  # not about


@needs_browser
@pytest.mark.browser
def test_an_mp4_is_made_of_all_frames(tmp_path, monkeypatch):
    tool = tmp_path / "ffmpeg"
    tool.write_text(f"#!{sys.executable}\nimport sys\nopen(sys.argv[-1], 'wb').write(sys.stdin.buffer.read())\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(shutil.which('chromium')).parent}")
    made = labkit.export(load(ASSET), tmp_path / "t.mp4", seconds=0.25).read_bytes()
    assert made.count(b"\x89PNG\r\n") == 3
