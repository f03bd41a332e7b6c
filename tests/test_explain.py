"""Every gap has one cause and a true sentence, and nothing is left over."""

import json

import polars as pl
import pytest
from hypothesis import given
from test_analysis import event, late_all_reduce, random_traces, relaxed, sync, trace_of
from typer.testing import CliRunner

from labkit import analysis, explain
from labkit.cli import app
from labkit.replay import planned_trace
from labkit.schedule import Durations, generate, simulate
from labkit.trace import Meta, Trace, from_events


def causes_of(trace: Trace, rank: int) -> list[tuple[int, int, str]]:
    table = explain.explain(trace).filter(pl.col("rank") == rank)
    return list(table.select("start_ns", "end_ns", "cause").rows())


def sentences_of(trace: Trace, rank: int) -> list[str]:
    return explain.explain(trace).filter(pl.col("rank") == rank)["sentence"].to_list()


def gap_ns(trace: Trace) -> dict[int, int]:
    """Time without work of each rank, from the breakdown."""
    rows = analysis.breakdown(trace).to_dicts()
    return {row["rank"]: row["idle_ns"] + row["exposed_sync_ns"] for row in rows}


def explained_ns(trace: Trace) -> dict[int, int]:
    sums = explain.explain(trace).group_by("rank").agg(pl.col("duration_ns").sum())
    return dict.fromkeys(gap_ns(trace), 0) | dict(sums.rows())


# ---- all of it, once


@relaxed
@given(random_traces())
def test_causes_add_up_to_the_whole_time_without_work(trace):
    assert explained_ns(trace) == gap_ns(trace)


@relaxed
@given(random_traces())
def test_no_moment_has_two_causes(trace):
    for _, rows in explain.explain(trace).partition_by("rank", as_dict=True).items():
        assert (rows["start_ns"][1:] >= rows["end_ns"][:-1]).all()
        assert (rows["duration_ns"] > 0).all()


@relaxed
@given(random_traces())
def test_every_gap_has_a_sentence_with_its_rank(trace):
    for row in explain.explain(trace).to_dicts():
        assert row["cause"] in list(analysis.Cause)
        assert row["sentence"].startswith(f"rank {row['rank']} ")
        assert "None" not in row["sentence"]


# ---- collectives


def test_straggler_and_bandwidth_by_hand():
    assert causes_of(late_all_reduce(), 0) == [(2, 5, "straggler"), (5, 9, "bandwidth-bound sync")]
    assert causes_of(late_all_reduce(), 1) == [(5, 9, "bandwidth-bound sync")]
    assert sentences_of(late_all_reduce(), 0)[0] == "rank 0 waited 3 ns in all_reduce (dp) for rank 1, which came last"
    assert sentences_of(late_all_reduce(), 0)[1] == (
        "rank 0 waited 4 ns in all_reduce (dp) of 1000 B: both ranks had come, the sync itself took this long"
    )


def test_a_straggler_is_told_with_the_layer_that_held_it_up():
    """Rank 0 waits from 2 to 12; rank 1 spends 2 to 9 of it in fc1, forward, and 3 in backward."""
    trace = trace_of(
        *[event(rank, "step", 0, 20) for rank in (0, 1)],
        event(0, "stage_forward", 0, 2),
        event(1, "stage_forward", 0, 9),
        event(1, "forward", 0, 1, layer="fc0"),
        event(1, "forward", 1, 9, layer="fc1"),
        event(1, "stage_backward", 9, 12),
        event(1, "backward", 9, 12, layer="fc1"),
        sync(0, "all_reduce", 2, 15),
        sync(1, "all_reduce", 12, 15),
    )
    assert sentences_of(trace, 0)[0] == (
        "rank 0 waited 10 ns in all_reduce (dp) for rank 1, which came last: meanwhile it spent 7 ns in forward fc1"
    )


def test_a_layer_that_took_little_of_the_wait_is_not_blamed():
    events = [row | {"microbatch": None} for row in late_all_reduce().events.to_dicts()]
    short = event(1, "backward", 2, 2, layer="fc0")
    trace = from_events([*events, short], late_all_reduce().meta)
    assert sentences_of(trace, 0)[0].endswith("for rank 1, which came last")


def test_only_the_time_a_rank_was_blocked_counts_where_it_is_told():
    """The bucket is under way from 2 to 9, the rank is blocked from 6: what lies between is its own doing."""
    waits = [sync(rank, "all_reduce", 6, 9, kind="wait") for rank in (0, 1)]
    rows = late_all_reduce().events.drop_nulls("kind").to_dicts()
    trace = from_events([*rows, *waits], Meta(source="paced", num_ranks=2))
    assert causes_of(trace, 0) == [(2, 6, "host/launch overhead"), (6, 9, "bandwidth-bound sync")]


def test_a_missing_partner_is_said():
    trace = trace_of(event(0, "step", 0, 10), event(0, "loss", 0, 2), sync(0, "all_reduce", 2, 10))
    assert causes_of(trace, 0) == [(2, 10, "partner not recorded")]


# ---- pipelines


def pipeline_step(*, sent_ns: int = 4, there_ns: int = 6) -> Trace:
    """Stage 0 works from 0 to 4, its result is at stage 1 at 6, which works to 10 and sends the gradient back."""
    return trace_of(
        *[event(rank, "step", 0, 20) for rank in (0, 1)],
        event(0, "stage_forward", 0, sent_ns, stage=0, microbatch=0),
        sync(0, "send", sent_ns, sent_ns, peer=1, axis="pp", microbatch=0),
        sync(1, "recv", 0, there_ns, peer=0, axis="pp", microbatch=0, size_bytes=2048),
        event(1, "stage_forward", there_ns, 8, stage=1, microbatch=0),
        event(1, "stage_backward", 8, 12, stage=1, microbatch=0),
        sync(1, "send", 12, 12, peer=0, axis="pp", microbatch=0),
        sync(0, "recv", sent_ns, 14, peer=1, axis="pp", microbatch=0),
        event(0, "stage_backward", 14, 20, stage=0, microbatch=0),
        plan={"pp": 2},
    )


def test_warm_up_and_late_p2p_by_hand():
    trace = pipeline_step()
    assert causes_of(trace, 1)[:2] == [(0, 4, "pipeline warm-up"), (4, 6, "late p2p")]
    assert causes_of(trace, 0) == [(4, 12, "pipeline warm-up"), (12, 14, "late p2p")]
    first, second = sentences_of(trace, 1)[:2]
    assert first == "rank 1 waited 4 ns for microbatch 0 from rank 0: the pipeline is filling"
    assert second == "rank 1 waited 2 ns for microbatch 0 from rank 0: both were ready, 2 KiB on the way"


def planned(name: str, *, ranks: int, microbatches: int, hop: float = 0.0, slow: int | None = None) -> Trace:
    """A schedule's stages on a clock, as a trace without messages."""
    scales = [2 if rank == slow else 1 for rank in range(ranks)]
    durations = [Durations(forward=20 * by, backward_input=20 * by, backward_weight=20 * by) for by in scales]
    slots = simulate(generate(name, ranks, microbatches), durations, hop=hop)
    kinds = {"F": "stage_forward", "B": "stage_backward", "I": "stage_backward_input", "W": "stage_backward_weight"}
    rows = [
        event(slot.rank, kinds[slot.action.kind.value], int(slot.start), int(slot.end), stage=slot.action.stage,
              microbatch=slot.action.microbatch)
        for slot in slots
    ]  # fmt: skip
    return from_events(rows, Meta(source="planned", num_ranks=ranks, plan={"pp": ranks, "schedule": name}))


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_a_balanced_planned_pipeline_only_fills_and_drains(name):
    trace = planned(name, ranks=4, microbatches=8)
    assert set(explain.summary(trace)["cause"]) == {"pipeline warm-up", "drain"}
    assert sum(explained_ns(trace).values()) == 4 * 3 * (20 + 40)  # (p - 1)(F + B) on each of p ranks


def test_messages_of_a_planned_pipeline_are_late_by_the_hop():
    trace = planned("gpipe", ranks=2, microbatches=4, hop=5)
    late = explain.explain(trace).filter(pl.col("cause") == "late p2p")
    assert set(late["duration_ns"]) == {5}


@pytest.mark.parametrize("is_sent", [True, False])
def test_equal_stages_wait_for_messages_and_for_no_slow_stage(is_sent):
    """Planned 1F1B whose messages take time, with messages in the trace and without."""
    one = Durations(forward=20, backward_input=20, backward_weight=20)
    trace = (
        planned_trace(generate("1f1b", 4, 8), one, hop_ns=5)
        if is_sent
        else planned("1f1b", ranks=4, microbatches=8, hop=5)
    )
    found = explain.explain(trace)
    assert "waiting for a slow stage" not in set(found["cause"])
    late = found.filter(pl.col("cause") == "late p2p")["sentence"].to_list()
    assert any("both were ready" in sentence for sentence in late)
    assert any("not computed yet: no rank works longer" in sentence for sentence in late)


def test_a_slow_stage_is_named():
    trace = planned("1f1b", ranks=4, microbatches=8, slow=2)
    slow = explain.explain(trace).filter(pl.col("cause") == "waiting for a slow stage")
    assert slow["duration_ns"].sum() > 0
    assert slow.filter(pl.col("rank") == 1)["by_rank"].unique().to_list() == [2]
    assert slow.filter(pl.col("rank") == 1)["sentence"][0] == (
        "rank 1 waited 60 ns for microbatch 1 from rank 2, not computed yet; "
        "in this step rank 2 works longest, 960 ns, rank 1 480 ns"
    )
    far = slow.filter(pl.col("rank") == 0)["sentence"].to_list()  # its neighbour is not the slow one
    assert far and all("rank 2 works longest" in sentence for sentence in far)


def test_a_hole_in_a_balanced_schedule_blames_nobody():
    one = Durations(forward=20, backward_input=20, backward_weight=20)
    found = explain.explain(planned_trace(generate("dualpipev", 4, 8), one))
    holes = found.filter(pl.col("cause") == "waiting in the order of work")["sentence"].to_list()
    assert holes and all(sentence.endswith("not computed yet: no rank works longer in this step") for sentence in holes)
    assert "waiting for a slow stage" not in set(found["cause"])


def test_the_end_of_a_step_is_told_with_the_rank_that_is_still_at_work():
    trace = planned_trace(generate("1f1b", 4, 8), Durations(forward=20, backward_input=20, backward_weight=20))
    assert sentences_of(trace, 3)[-1] == (
        "rank 3 stood still for 120 ns at the end of its step: rank 0 was still at work, the pipeline drains"
    )


# ---- waiting for nobody


@pytest.mark.parametrize(
    ("cpu_ns", "cores", "cause"),
    [(2, 1, "more ranks than cores"), (9, 1, "host/launch overhead"), (2, 2, "host/launch overhead")],
)
def test_cores_are_the_cause_where_they_are_short_and_little_cpu_was_used(cpu_ns, cores, cause):
    """10 ns, 2 of them work without CPU time elsewhere: the rest is the host's if it used the CPU."""
    steps = [event(rank, "step", 0, 10, cpu_ns=cpu_ns) for rank in (0, 1)]
    trace = trace_of(*steps, event(0, "optimizer", 0, 2, cpu_ns=0), source="measured", num_cores=cores)
    assert causes_of(trace, 0) == [(2, 10, cause)]


def test_host_sentences_name_what_lies_around():
    trace = trace_of(event(0, "step", 0, 9), event(0, "loss", 0, 2), event(0, "optimizer", 5, 9), ranks=1)
    (sentence,) = sentences_of(trace, 0)
    assert sentence == (
        "rank 0 stood still for 3 ns between loss and optimizer, waiting for nobody: host or launch overhead"
    )


# ---- text and commands


def test_waits_that_are_alike_are_told_once():
    """Ten all_reduces of rank 0, each waiting 5 for rank 1 and 1 for itself: two sentences, with how many like it."""
    calls = [sync(rank, "all_reduce", 10 * i + 5 * rank, 10 * i + 6, seq=i) for i in range(10) for rank in (0, 1)] + [
        event(rank, "step", 0, 100) for rank in (0, 1)
    ]
    text = explain.describe(trace_of(*calls))
    told = [line for line in text.splitlines() if line.startswith("    - ") and "rank 0" in line]
    waits = "rank 0 waited 5 ns in all_reduce (dp) for rank 1, which came last (and 9 like it, 50 ns in all)"
    assert f"    - step 0: {waits}" in told
    assert len(told) == 3


def test_a_cause_that_takes_almost_nothing_gets_no_sentence():
    trace = trace_of(event(0, "step", 0, 1000), event(0, "loss", 1, 2), sync(0, "all_reduce", 2, 1000), ranks=1)
    told = [line for line in explain.describe(trace).splitlines() if line.startswith("    - ")]
    assert len(told) == 1 and "all_reduce" in told[0]


def test_kernels_are_named_by_what_they_do():
    name = "void at::native::(anonymous namespace)::reduce_kernel<128, 4, at::native::ReduceOp<float> >(float)"
    kernels = [event(0, "kernel", 0, 2, layer=name), event(0, "kernel", 5, 9, layer="Memcpy DtoD (Device -> Device)")]
    (words,) = sentences_of(trace_of(*kernels, source="imported", ranks=1), 0)
    assert "between kernel reduce_kernel and kernel Memcpy DtoD, waiting" in words


def test_summary_by_hand():
    rows = explain.summary(late_all_reduce()).filter(pl.col("rank") == 0).to_dicts()
    assert [(row["cause"], row["duration_ns"], row["percent"]) for row in rows] == [
        ("bandwidth-bound sync", 4, 40.0),
        ("straggler", 3, 30.0),
    ]


def test_describe_tells_ranks_causes_and_remedies():
    text = explain.describe(late_all_reduce())
    assert "rank 0: 7 ns of 10 ns without work (70.0%)" in text
    assert "step 0: rank 0 waited 3 ns in all_reduce (dp) for rank 1, which came last" in text
    assert "straggler: another rank came later" in text


@pytest.mark.parametrize("command", ["analyze", "explain"])
def test_commands_print_json(command, tmp_path):
    path = late_all_reduce().save(tmp_path / "t.parquet")
    result = CliRunner().invoke(app, [command, str(path), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["kind"] == "paced"
    assert {row["rank"] for row in found["ranks" if command == "analyze" else "gaps"]} == {0, 1}


def test_analyze_tells_each_rank(tmp_path):
    path = late_all_reduce().save(tmp_path / "t.parquet")
    found = json.loads(CliRunner().invoke(app, ["analyze", str(path), "--json"]).output)["ranks"][0]
    assert found == {
        **{"rank": 0, "idle_ns": 0, "compute_ns": 3, "non_compute_ns": 7, "exposed_sync_ns": 7},
        "overlap_percent": 0.0,
    }
    text = CliRunner().invoke(app, ["analyze", str(path)]).output
    assert "rank 1 came last to 1 of 1 dp syncs" in text


@pytest.mark.parametrize("command", ["analyze", "explain"])
def test_commands_refuse_what_is_not_there(command, tmp_path):
    result = CliRunner().invoke(app, [command, str(tmp_path / "no.parquet")])
    assert result.exit_code == 2
    assert "no file" in result.output
