"""A run under way is told as it goes, and what is told is what the final trace says."""

import polars as pl
import pytest

from labkit.lab import run
from labkit.launch import POOL
from labkit.live import Live
from labkit.plan import Plan
from labkit.view.timeline import live_timeline

SLOW = Plan(pp=2, layers=2, microbatches=2, global_batch=16, steps=12, pace="forward=20ms,backward=30ms")
NAMES = ("rank", "kind", "step", "microbatch", "layer", "start_ns", "end_ns", "op", "peer", "seq", "activation_bytes")


def told(trace, final) -> None:
    """Every event of `trace` is one of `final`'s, in the same times."""
    columns = [pl.col("kind").cast(pl.String) if name == "kind" else pl.col(name) for name in NAMES]
    shown, known = trace.events.select(columns), final.events.select(columns)
    assert shown.join(known, on=list(NAMES), how="anti", nulls_equal=True).is_empty()


def test_what_is_shown_while_it_runs_equals_the_final_trace():
    seen = []
    final = run(SLOW, on_trace=seen.append)
    last_steps = [trace.events["step"].max() for trace in seen]
    assert seen and last_steps == sorted(set(last_steps))  # each time there is something new
    for trace in seen:
        told(trace, final)
        steps, first = trace.events["step"].unique().sort().to_list(), trace.events["step"].min()
        assert steps == list(range(first, first + len(steps))) and trace.meta.source == "paced"
    whole = seen[-1].events
    assert whole.height == final.events.filter(pl.col("step") <= last_steps[-1]).height


def parts_of(plan: Plan) -> list:
    found = []
    POOL.run(plan, on_part=found.append)
    return found


def test_a_step_is_told_when_all_ranks_have_done_it():
    parts = parts_of(SLOW)
    live = Live(SLOW, lambda trace: None)
    first = [part for part in parts if part.rank == 0]
    for part in first:
        live.add(part)
    assert live.take() is None  # nothing of rank 1 yet
    for part in parts:
        if part.rank == 1:
            live.add(part)
    assert live.take().events["step"].max() == SLOW.steps - 1
    assert live.take() is None  # nothing new


@pytest.mark.parametrize(("most", "steps"), [(10**6, SLOW.steps), (1, 1)])
def test_only_the_latest_steps_are_kept(most, steps):
    live = Live(SLOW, lambda trace: None, max_events=most)
    for part in parts_of(SLOW):
        live.add(part)
    trace = live.take()
    assert trace.events["step"].n_unique() == steps and trace.events["step"].max() == SLOW.steps - 1


def test_a_timeline_follows_a_run_and_ends_with_its_trace():
    live, counts = live_timeline(SLOW), []
    live.observe(lambda change: counts.append(len(change["new"]["start"]) // 8), "columns")
    assert live.is_live and live.columns["start"] == b""
    final = run(SLOW, on_trace=live.follow)
    assert live.is_live and "The run goes on" in live.notes[0]
    live.show(final)
    assert not live.is_live and list(live.notes) == list(final.meta.notes)
    assert len(counts) >= 2 and counts == sorted(counts)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_picture_that_fails_does_not_stop_the_run():
    def fail(trace):
        raise RuntimeError("no paper left")

    assert len(run(SLOW, on_trace=fail).meta.losses) == SLOW.steps
