"""The record of our own runs: what is in it, how it is told, and that the kept one is of the plans that are listed."""

import json

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.own_runs import PAIRS, Compared, Record, load_record
from labkit.own_runs.live import kept_pace, late_ms, longest_chain_ns
from labkit.own_runs.plans import REMEMBERED, REPLAYED
from labkit.own_runs.record import KEPT, TABLES, mean_error
from labkit.plan import Plan
from labkit.trace import Meta, from_events

ROWS = (
    Compared("replanned", "a -> pp 2", "step, ms", 90.0, 100.0, 3.5),
    Compared("replanned", "a -> pp 4", "step, ms", 1210.0, 1000.0),
    Compared("memory", "digits", "parameters, bytes", 10.0, 10.0),
    Compared("memory", "digits", "gradients, bytes", 11.0, 10.0),
    Compared("memory", "GPT", "parameters, bytes", 4000.0, 5000.0),
)
RECORD = Record("2026-11-30", "Linux, x86_64", 2, {"torch": "2.13.0"}, "Run twice.", ROWS)


def test_errors_by_hand():
    assert [round(row.error, 3) for row in ROWS] == [-0.1, 0.21, 0.0, 0.1, -0.2]
    assert mean_error(ROWS[:2]) == pytest.approx(0.155)
    assert Compared("memory", "sgd", "optimizer state, bytes", 0, 0).error == 0
    assert Compared("memory", "sgd", "optimizer state, bytes", 5, 0).error == float("inf")


def test_a_record_is_saved_and_read(tmp_path):
    RECORD.save(tmp_path / "own.json")
    assert load_record(tmp_path / "own.json") == RECORD


def test_the_page_says_where_it_is_from_and_lists_every_row():
    page = RECORD.markdown()
    assert page.startswith("Recorded on 2026-11-30 on a machine with 2 cores (Linux, x86_64; torch 2.13.0). Run twice.")
    assert "| Turned into another plan, then really run | 2 | 15.5% | 21.0% |" in page
    assert "| a -> pp 2 | -10.0% | 90.00 | 100.00 | 3.5 ms |" in page
    assert "| a -> pp 4 | +21.0% | 1,210.00 | 1,000.00 |  |" in page
    assert "| | parameters, bytes | gradients, bytes |" in page
    assert "| digits | 10 (+0.0%) | 10 (+10.0%) |" in page
    assert "| GPT | 5,000 (-20.0%) |  |" in page
    assert "### Replayed as it was" in page and "Not recorded." in page


@pytest.mark.parametrize(("content", "message"), [(None, "no record of own runs"), ("{}", "is no record of own runs")])
def test_what_is_no_record_is_refused(content, message, tmp_path):
    path = tmp_path / "own.json"
    if content:
        path.write_text(content)
    with pytest.raises(ValueError, match=message):
        load_record(path)


def test_the_kept_record_is_of_the_listed_plans_and_near_them():
    kept = load_record()
    assert [row.case for row in kept.of("replanned")] == [str(pair) for pair in PAIRS]
    assert {row.case for row in kept.of("memory")} == set(REMEMBERED)
    assert all(any(row.case.startswith(name) for row in kept.of("replayed")) for name in REPLAYED)
    assert all(row.measured > 0 for row in kept.of("replanned"))
    assert mean_error(kept.of("replanned")) <= 0.05
    assert max(abs(row.error) for row in kept.of("replayed")) <= 0.03
    assert max(abs(row.error) for row in kept.of("memory")) <= 0.02


def test_the_readme_tells_what_the_kept_record_says():
    readme = (KEPT.parents[1] / "README.md").read_text(encoding="utf-8")
    told = [line.split("|")[2:4] for line in readme.splitlines() if line.startswith("| own runs:")]
    kept = [load_record().of(name) for name in TABLES]
    errors = [(mean_error(rows), max(abs(row.error) for row in rows)) for rows in kept]
    assert told == [[f" {100 * share:.1f} % " for share in shares] for shares in errors]


def test_pairs_are_many_and_change_everything_that_may_change():
    assert len(PAIRS) >= 24
    assert len({str(pair) for pair in PAIRS}) == len(PAIRS)
    changed = {name for pair in PAIRS for name in pair.changes}
    assert {"dp", "tp", "pp", "schedule", "microbatches", "link"} <= changed
    assert all(pair.new != pair.old and pair.new.source == "paced" for pair in PAIRS)


def unpaced_steps():
    """Two stages, two microbatches; CPU times F 3 and 2, loss 1, B 4 and 5, on microbatch 1 one more each."""
    rows = []
    for microbatch in (0, 1):
        for rank, kind, cpu_ns in ((0, "stage_forward", 3), (1, "stage_forward", 2), (1, "loss", 1),
                                   (1, "stage_backward", 5), (0, "stage_backward", 4)):  # fmt: skip
            rows.append({"rank": rank, "kind": kind, "step": 1, "stage": rank, "microbatch": microbatch,
                         "start_ns": 0, "end_ns": 99, "cpu_ns": cpu_ns + microbatch, "late_ns": 2_000_000})  # fmt: skip
    return from_events(rows, Meta("measured", num_ranks=2))


def test_the_longest_chain_by_hand():
    """Stage 0: F0 0-3, F1 3-7. Stage 1: F0 3-6, B0 6-11, F1 11-16, B1 16-22. Stage 0: B0 11-15, B1 22-27."""
    plan = Plan(pp=2, microbatches=2, layers=2)
    assert plan.pipeline.to_text().splitlines() == ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]
    assert longest_chain_ns(unpaced_steps(), plan, 1) == 27


def test_lateness_is_of_paced_runs():
    assert late_ms(unpaced_steps()) == 2.0
    assert (
        late_ms(from_events([{"rank": 0, "kind": "step", "step": 1, "start_ns": 0, "end_ns": 1}], Meta("measured")))
        is None
    )


@pytest.mark.parametrize(
    ("late", "taken", "num_runs"), [((5,), 0, 1), ((90, 20), 1, 2), ((90, 50, 70), 1, 3), ((None,), 0, 1)]
)
def test_the_least_late_run_is_taken(late, taken, num_runs):
    """By lateness alone: a run is never chosen by its step time."""
    runs = [
        from_events([{"rank": 0, "kind": "step", "step": 1, "start_ns": 0, "end_ns": i,
                      "late_ns": None if ms is None else ms * 1_000_000}], Meta("paced"))
        for i, ms in enumerate(late, start=1)
    ]  # fmt: skip
    left = iter(runs)
    assert kept_pace(Plan(), run=lambda plan: next(left)) is runs[taken]
    assert len(list(left)) == len(runs) - num_runs


def test_the_command_prints_the_kept_record():
    result = CliRunner().invoke(app, ["own-runs", "--kept"])
    assert result.exit_code == 0 and result.output.startswith("Recorded on ")
    found = json.loads(CliRunner().invoke(app, ["own-runs", "--kept", "--json"]).output)
    assert set(found["tables"]) == set(TABLES)
    assert len(found["tables"]["replanned"]["rows"]) == len(PAIRS)
    refused = CliRunner().invoke(app, ["own-runs", "--pairs", "99"])
    assert (refused.exit_code, "give a number from 0 to" in refused.output) == (2, True)
