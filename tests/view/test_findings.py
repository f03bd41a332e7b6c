"""Why ranks stand still, as a widget: the numbers are those of the analysis."""

import example_traces as examples
import pytest

from labkit import analysis, explain
from labkit.view.findings import LOOK_OF_CAUSE, MAX_RANKS, findings
from labkit.view.theme import look


def test_work_and_causes_make_up_a_ranks_time():
    found = findings(examples.one_f_one_b(num_steps=2))
    for rank in found.ranks:
        assert rank["work"] + sum(percent for _, percent in rank["causes"]) == pytest.approx(100)
    assert len(found.ranks) == 4


def test_the_longest_gaps_of_the_step_come_first():
    trace = examples.one_f_one_b(num_steps=2)
    table = explain.explain(trace)
    of_rank = [row for row in table.to_dicts() if row["rank"] == 3 and row["step"] == 1]
    longest = max(of_rank, key=lambda row: row["duration_ns"])
    assert findings(trace, step=1).ranks[3]["gaps"][0] == [longest["sentence"], longest["start_ns"]]


def test_every_cause_has_a_look_and_only_found_ones_are_listed():
    assert {str(cause) for cause in analysis.Cause} | {"work"} == set(map(str, LOOK_OF_CAUSE))
    for name in LOOK_OF_CAUSE.values():
        assert look(name)
    found = findings(examples.one_f_one_b())
    assert set(found.looks) == {"work", *found.causes} and "drain" in found.causes


def test_nothing_to_explain():
    assert findings(examples.empty()).ranks == []


def test_many_ranks_are_cut_and_it_is_said():
    found = findings(examples.dense(4000, num_ranks=MAX_RANKS + 4))
    assert len(found.ranks) == MAX_RANKS and f"The first {MAX_RANKS} of {MAX_RANKS + 4} ranks" in found.note
