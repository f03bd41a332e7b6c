"""Captures that lessons open at once: found by their very plan, and only by it."""

import pytest

from labkit import captures, lesson
from labkit.plan import Plan
from labkit.trace import Meta, from_events


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(captures, "CAPTURES", tmp_path / "captures")
    return tmp_path / "captures"


def trace_of(plan: Plan, **meta):
    events = [{"rank": 0, "kind": "forward", "step": 0, "start_ns": 0, "end_ns": 10}]
    return from_events(events, Meta("measured", plan=plan.to_dict(), num_cores=2, **meta))


@pytest.fixture
def runs(monkeypatch):
    """Stands in for processes: which plans were run."""
    asked = []

    def run(plan, *, verify=False):
        asked.append(plan)
        return trace_of(plan, equality={"loss_max_abs_diff": 0.0} if verify else None)

    monkeypatch.setattr(lesson, "run", run)
    return asked


def test_a_kept_run_is_not_run_again_and_says_so(folder, runs):
    plan = Plan(dp=2)
    captures.keep_capture(trace_of(plan), plan)
    trace = lesson.recall(plan)
    assert runs == [] and trace.events.height == 1
    assert any(note.startswith("recorded on ") and "2 cores" in note for note in trace.meta.notes)


def test_a_changed_plan_is_run(folder, runs):
    captures.keep_capture(trace_of(Plan(dp=2)), Plan(dp=2))
    lesson.recall(Plan(dp=2, lr=0.2))
    assert runs == [Plan(dp=2, lr=0.2)]


def test_a_capture_without_proof_does_not_serve_who_asks_for_one(folder, runs):
    plan = Plan(dp=2)
    captures.keep_capture(trace_of(plan), plan)
    assert lesson.recall(plan, verify=True).meta.equality and runs == [plan]


def test_a_spoiled_capture_is_run_instead(folder, runs):
    plan = Plan(dp=2)
    captures.keep_capture(trace_of(plan), plan).write_bytes(b"PAR1 no more")
    lesson.recall(plan)
    assert runs == [plan]


def test_runs_are_kept_only_where_captures_are_made(folder, runs, monkeypatch):
    lesson.recall(Plan())
    assert not folder.exists()
    monkeypatch.setenv(lesson.KEEP, "1")
    lesson.recall(Plan())
    lesson.recall(Plan())
    assert len(runs) == 2 and len(list(folder.iterdir())) == 1


def test_every_field_of_a_plan_counts(folder):
    paths = {captures.capture_path(plan) for plan in (Plan(), Plan(seed=1), Plan(dtype="float64"), Plan(record=()))}
    assert len(paths) == 4
