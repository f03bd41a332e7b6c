"""A trace becomes columns and a widget, whatever is in it."""

import re

import example_traces as examples
import numpy as np
import polars as pl
import pytest

from labkit.mesh import Mesh
from labkit.trace import Meta, from_events
from labkit.view.esm import STATIC, join_modules, whole_module, widget_module, with_imports
from labkit.view.spans import EITHER, STAGE, SYNC, spans_of
from labkit.view.timeline import Timeline, rank_labels, rows_of_ranks, timeline

PLAYERS = sorted(path.stem for path in STATIC.glob("*.js") if "\nexport default { render };" in path.read_text())


def column(spans, name: str, dtype: str) -> np.ndarray:
    return np.frombuffer(spans.columns[name], dtype)


def test_spans_are_ordered_and_point_back_to_the_trace():
    trace = examples.one_f_one_b()
    spans = spans_of(trace)
    rank, start = column(spans, "rank", "<u2"), column(spans, "start", "<f8")
    order = np.lexsort((start, rank))
    assert (order == np.arange(spans.count)).all()
    events = trace.events[column(spans, "row", "<u4").tolist()]
    assert (events["start_ns"].to_numpy() == start).all()
    assert (events["end_ns"].to_numpy() - start == column(spans, "duration", "<f8")).all()


def test_containers_come_before_what_they_contain():
    spans = spans_of(examples.one_f_one_b())
    grain, start, rank = column(spans, "grain", "u1"), column(spans, "start", "<f8"), column(spans, "rank", "<u2")
    stages = {(rank[i], start[i]): i for i in range(spans.count) if grain[i] == STAGE}
    assert stages
    for (at_rank, at_start), i in stages.items():
        inside = [k for k in range(i) if rank[k] == at_rank and start[k] == at_start and grain[k] > STAGE]
        assert all(grain[k] in (EITHER, SYNC) for k in inside)


def test_both_ends_of_a_message_share_a_link_and_no_others():
    trace = examples.one_f_one_b()
    spans = spans_of(trace)
    events = trace.events[column(spans, "row", "<u4").tolist()].with_columns(
        link=pl.Series(column(spans, "link", "<i4"))
    )
    syncs = events.filter(pl.col("kind") == "sync").group_by("link").agg(pl.col("op").sort(), pl.col("microbatch"))
    assert syncs.height == 2 * 3 * 8
    assert all(ops == ["recv", "send"] for ops in syncs["op"].to_list())
    assert all(len(set(microbatches)) == 1 for microbatches in syncs["microbatch"].to_list())
    assert (events.filter(~pl.col("kind").is_in(["sync", "wait"]))["link"] == -1).all()


def test_a_collective_shares_a_link_over_its_group_only():
    trace = examples.mixed(Mesh(pp=2, dp=2, tp=2))
    spans = spans_of(trace)
    events = trace.events[column(spans, "row", "<u4").tolist()].with_columns(
        link=pl.Series(column(spans, "link", "<i4"))
    )
    ranks = events.filter(pl.col("kind") == "sync").group_by("link").agg(pl.col("rank").sort(), pl.col("group").first())
    assert all(row["rank"] == row["group"] for row in ranks.iter_rows(named=True))


def test_columns_of_nulls_are_not_sent():
    spans = spans_of(examples.dense(1000))
    assert "layer" not in spans.columns and "link" not in spans.columns
    assert "samples" not in spans.columns


def test_samples_are_sent_flat():
    spans = spans_of(examples.data_parallel(num_ranks=2, num_steps=1))
    counts = column(spans, "num_samples", "<i4")
    assert counts[counts > 0].tolist() == [16, 16]
    assert column(spans, "samples", "<i4").tolist() == list(range(32))


@pytest.mark.parametrize("make", [examples.empty, examples.single, examples.one_f_one_b, examples.mixed])
def test_any_trace_makes_a_widget(make):
    widget = timeline(make())
    assert isinstance(widget, Timeline) and widget.source in ("measured", "paced")
    assert widget.selected == -1


def test_an_end_before_its_start_is_drawn_without_length():
    row = dict(rank=0, kind="forward", start_ns=10, end_ns=5)
    assert column(spans_of(from_events([row], Meta("measured"))), "duration", "<f8").tolist() == [0]


def test_ranks_beyond_the_metadata_get_a_row():
    rows = [dict(rank=2, kind="forward", start_ns=0, end_ns=5)]
    labels = rank_labels(from_events(rows, Meta("imported", num_ranks=1)))
    assert [label["rank"] for label in labels] == [0, 1, 2]


def test_of_an_imported_job_only_ranks_with_a_file_get_a_row():
    """Rank 34 of a job of 300: one row. In a run of our own a rank without events keeps its row, which is a finding."""
    rows = [dict(rank=34, kind="kernel", start_ns=0, end_ns=5)]
    assert [one["rank"] for one in rows_of_ranks(from_events(rows, Meta("imported", num_ranks=1)))] == [34]
    assert len(rows_of_ranks(from_events(rows, Meta("measured", num_ranks=36)))) == 36


def test_labels_name_only_axes_that_are_used():
    assert rank_labels(examples.mixed())[5] == {"rank": 5, "place": "stage 1 · dp 0 · tp 1"}
    assert rank_labels(examples.one_f_one_b())[2] == {"rank": 2, "place": "stage 2"}
    assert rank_labels(examples.single())[0] == {"rank": 0, "place": ""}


def test_a_rank_of_several_stages_names_them_all():
    rows = [dict(rank=0, kind="stage_forward", stage=stage, start_ns=stage, end_ns=stage + 1) for stage in (3, 0)]
    plan = {"pp": 2, "schedule": "zbv"}
    labels = rank_labels(from_events(rows, Meta("planned", plan=plan, num_ranks=2)))
    assert [label["place"] for label in labels] == ["stages 0, 3", "stage 1"]


def test_of_many_stages_a_rank_names_the_first_two_and_the_last():
    rows = [dict(rank=0, kind="stage_forward", stage=2 * i, start_ns=i, end_ns=i + 1) for i in range(25)]
    trace = from_events(rows, Meta("planned", plan={"pp": 2, "schedule": "looped_bfs"}, num_ranks=2))
    assert rank_labels(trace)[0]["place"] == "stages 0, 2, … 48"


def test_the_source_is_shown_with_its_scale_and_once():
    widget = timeline(examples.data_parallel())
    assert widget.source == "paced, 100 times slower"
    assert "paced" not in widget.heading


def test_notes_tell_of_dropped_events_once():
    assert [note for note in timeline(examples.mixed()).notes if "12 events were dropped" in note]
    told = examples.mixed().with_meta(notes=("12 events were dropped",))
    assert timeline(told).notes == ["12 events were dropped"]


def test_a_step_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="steps 0 to 1"):
        timeline(examples.one_f_one_b(num_steps=2), step=7)


def test_python_and_javascript_agree_on_grains_and_columns():
    text = (STATIC / "spans.js").read_text()
    assert "GRAIN = { step: 0, stage: 1, layer: 2, either: 3, sync: 4 }" in text
    sent = set(spans_of(examples.one_f_one_b()).columns)
    assert sent <= set(re.findall(r"(\w+): \w+Array", text))


@pytest.mark.parametrize("name", PLAYERS)
def test_joined_modules_share_no_top_level_name(name):
    top_level = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)
    found = [made for one in with_imports(name) for made in top_level.findall((STATIC / f"{one}.js").read_text())]
    assert len(found) == len(set(found)), sorted(made for made in found if found.count(made) > 1)


@pytest.mark.parametrize("name", PLAYERS)
def test_a_joined_module_imports_nothing_and_exports_once(name):
    text = join_modules(name)
    assert not re.search(r"^import\b", text, re.MULTILINE)
    assert re.findall(r"^export\b.*", text, re.MULTILINE) == ["export default { render };"]


def test_a_module_comes_once_and_after_those_it_imports():
    names = with_imports("timeline")
    assert len(names) == len(set(names)) and names[-1] == "timeline"
    assert names.index("spans") < names.index("tracks") < names.index("paint")


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.css")), ids=lambda path: path.name)
def test_styles_stay_inside_our_widgets(path):
    rules = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    rules = re.sub(r"@(?:container|media)[^{]*\{", "", rules)
    selectors = [selector.strip() for selector in re.findall(r"([^{}]+)\{", rules)]
    assert selectors and all(selector.startswith(".labkit") for selector in selectors), selectors
    assert not re.search(r"url\(|@import", rules)


def test_a_widget_holds_its_whole_module_as_a_string():
    esm = widget_module("timeline")
    assert whole_module(esm) == join_modules("timeline")
    assert len([line for line in esm.splitlines() if len(line) > 1000]) == 1 and "export default { render" in esm
