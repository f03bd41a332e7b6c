"""Any sequence of events can be saved, loaded, analysed, explained, replayed and drawn, or is refused in words."""

import os
import tempfile
from pathlib import Path

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit import analysis, report
from labkit.event import KINDS
from labkit.explain import explain
from labkit.replay import Changes, replay
from labkit.trace import Meta, Trace, from_events, load

NUM_RANKS = 4
PLANS = [None, {"dp": 4}, {"tp": 4}, {"pp": 4, "schedule": "1f1b"}, {"pp": 2, "dp": 2}, {"pp": 2, "tp": 2}]
LAYERS = [None, "fc0", "block.1", "<b>fc</b>", "", "層" * 40]
OPS = [None, "all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv", "barrier", "what?"]
GROUPS = [None, [0, 1], [0, 1, 2, 3], [2], []]
small = st.integers(0, 3)
times = st.one_of(st.integers(0, 50), st.integers(0, 10**6), st.sampled_from([0, 2**40, 2**55]))


@st.composite
def events(draw) -> dict:
    start = draw(times)
    maybe = lambda strategy: draw(st.one_of(st.none(), strategy))  # noqa: E731
    return {
        "rank": draw(st.integers(0, NUM_RANKS - 1)),
        "kind": str(draw(st.sampled_from(KINDS))),
        "step": maybe(small),
        "microbatch": maybe(small),
        "stage": maybe(small),
        "layer": draw(st.sampled_from(LAYERS)),
        "start_ns": start,
        "end_ns": start + draw(st.one_of(st.just(0), times)),
        "cpu_ns": maybe(times),
        "late_ns": maybe(times),
        "op": draw(st.sampled_from(OPS)),
        "axis": draw(st.sampled_from([None, "dp", "tp", "pp", "pp+dp", "self"])),
        "group": draw(st.sampled_from(GROUPS)),
        "peer": maybe(st.integers(0, NUM_RANKS - 1)),
        "size_bytes": maybe(st.integers(0, 2**40)),
        "dtype": draw(st.sampled_from([None, "float32", "int7"])),
        "seq": maybe(small),
        "param_bytes": maybe(st.integers(0, 2**40)),
        "activation_bytes": maybe(st.integers(0, 2**40)),
        "samples": maybe(st.lists(st.integers(0, 2000), max_size=3)),
    }


@st.composite
def traces(draw) -> Trace:
    plan = draw(st.sampled_from(PLANS))
    source = draw(st.sampled_from(["measured", "paced", "planned", "imported", "predicted"]))
    rows = draw(st.lists(events(), max_size=25))
    meta = Meta(source, plan=plan and {"task": "digits", **plan}, num_ranks=NUM_RANKS, num_cores=draw(small))
    return from_events(rows, meta)


MORE = int(os.environ.get("LABKIT_EXAMPLES", "1"))
"""`make soak` asks for many times as many."""


def any_trace(examples: int):
    limits = settings(max_examples=examples * MORE, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda test: limits(given(traces())(test))


ANALYSES = [
    analysis.bandwidth, analysis.breakdown, analysis.bubble, analysis.collectives, analysis.counts,
    analysis.critical_path, analysis.gaps, analysis.memory_lanes, analysis.memory_peaks, analysis.messages,
    analysis.notes, analysis.overlap_percent, analysis.stragglers, analysis.sync_totals, analysis.syncs_per_step,
    analysis.temporal_breakdown, analysis.unmatched_syncs, explain, report.describe, report.summary,
]  # fmt: skip


@any_trace(40)
def test_every_question_has_an_answer_or_a_refusal(trace):
    for question in ANALYSES:
        try:
            question(trace)
        except ValueError as error:  # TraceError, ReplayError and the like
            assert len(str(error)) > 15, question


@any_trace(40)
def test_gaps_are_idle_time_and_no_more(trace):
    gaps = analysis.gaps(trace)
    assert (gaps["duration_ns"] >= 0).all() and (gaps["end_ns"] - gaps["start_ns"] == gaps["duration_ns"]).all()
    overlaps = gaps.sort("rank", "start_ns").with_columns(pl.col("end_ns").shift(1).over("rank").alias("before"))
    assert (overlaps["start_ns"] >= overlaps["before"]).fill_null(True).all()


@any_trace(30)
def test_replay_answers_or_refuses(trace):
    for changes in (Changes(), Changes(compute=0.5)):
        try:
            again = replay(trace, changes)
        except ValueError as error:
            assert len(str(error)) > 15
        else:
            assert again.meta.source == "replayed" and (again.events["end_ns"] >= again.events["start_ns"]).all()


@any_trace(20)
def test_saved_and_loaded_it_is_the_same(trace):
    with tempfile.TemporaryDirectory() as folder:
        again = load(trace.save(Path(folder) / "any.parquet"))
    assert again.events.equals(trace.events) and again.meta == trace.meta


@any_trace(15)
def test_every_picture_can_be_drawn(trace):
    import labkit

    for draw in (
        labkit.timeline, labkit.all_reduce, labkit.batch_flow, labkit.matrix_shard, labkit.mesh_grid,
        labkit.memory_lanes, labkit.loss_figure, labkit.breakdown_figure, labkit.sync_figure, labkit.memory_figure,
    ):  # fmt: skip
        drawn = draw(trace)
        if hasattr(drawn, "close"):
            drawn.close()
