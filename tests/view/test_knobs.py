"""Knobs: what they turn, what they show, and what they do with a plan that cannot run."""

import threading

import plotly.graph_objects as go
import pytest
from example_traces import one_f_one_b

from labkit.view.knobs import Dial, Knobs, dial_form, knobs_form, pictures
from labkit.view.report import report


def kinds(form):
    return {field["name"]: field["kind"] for group in form.groups for field in group["fields"]}


def test_the_kind_of_a_knob_follows_its_values():
    form = knobs_form(
        {"pp": 4}, {"microbatches": (2, 4), "schedule": ("gpipe", "1f1b"), "recompute": (False, True)}, ""
    )
    assert kinds(form) == {"microbatches": "slider", "schedule": "choice", "recompute": "switch"}
    assert form.values == {"dp": 1, "tp": 1, "pp": 4, "microbatches": 2, "schedule": "gpipe", "recompute": False}


def test_a_knob_starts_where_the_plan_stands():
    assert knobs_form({"microbatches": 4}, {"microbatches": (2, 4)}, "").values["microbatches"] == 4


def test_a_knob_without_values_is_refused():
    with pytest.raises(ValueError, match="microbatches has no values"):
        knobs_form({}, {"microbatches": ()}, "")


class Bench:
    """Stands in for processes: which values were run, and a trace for each."""

    def __init__(self, kept=()):
        self.runs, self.drawn, self.kept, self.may_end = [], [], set(kept), threading.Event()
        self.may_end.set()
        form = knobs_form({}, {"microbatches": (1, 2, 3, 4)}, "")
        self.knobs = Knobs(self.run, self.plan_from, form, self.draw, self.recalled)

    def plan_from(self, values):
        if values["microbatches"] == 3:
            raise ValueError("3 cannot run: choose 4")
        return values["microbatches"]

    def run(self, values, progress, cancelled):
        self.runs.append(values["microbatches"])
        self.may_end.wait(10)
        return None if cancelled.is_set() else self.trace(values, "run")

    def recalled(self, values):
        return self.trace(values, "kept") if values["microbatches"] in self.kept else None

    def trace(self, values, how):
        return one_f_one_b().with_meta(notes=(f"{how} {values['microbatches']}",))

    def draw(self, trace):
        self.drawn.append(trace.meta.notes[0])
        return report(trace)

    def turn(self, microbatches):
        self.knobs.form.values = {**self.knobs.form.values, "microbatches": microbatches}
        self.knobs.wait(10)


def test_a_kept_capture_shows_at_once_and_anything_else_is_run():
    bench = Bench(kept=(1, 4))
    assert (bench.drawn, bench.runs) == (["kept 1"], [])
    bench.turn(2)
    bench.turn(4)
    assert (bench.drawn, bench.runs) == (["kept 1", "run 2", "kept 4"], [2])


def test_run_repeats_what_is_shown_even_where_a_capture_is_kept():
    bench = Bench(kept=(1,))
    bench.knobs.start()
    bench.knobs.wait(10)
    assert bench.drawn == ["kept 1", "run 1"]


def test_a_plan_that_cannot_run_says_why_and_the_picture_stays():
    bench = Bench(kept=(1,))
    bench.turn(3)
    assert bench.knobs.form.problem == "3 cannot run: choose 4" and bench.drawn == ["kept 1"] and bench.runs == []


def test_turning_on_while_a_run_is_going_ends_in_the_last_position():
    bench = Bench(kept=(1,))
    bench.may_end.clear()
    bench.knobs.form.values = {**bench.knobs.form.values, "microbatches": 2}
    bench.knobs.form.values = {**bench.knobs.form.values, "microbatches": 4}
    bench.may_end.set()
    bench.knobs.wait(10)  # the cancelled one
    bench.knobs.wait(10)  # the one that followed
    assert bench.runs == [2, 4] and bench.drawn == ["kept 1", "run 4"] and bench.knobs.form.state == "idle"


def test_a_dial_draws_anew_and_tells_what_it_cannot_draw():
    def draw(size):
        if size == 2:
            raise ValueError("2 is too small")
        return go.Figure(layout_title_text=f"size {size}")

    dial = Dial(dial_form({}, {"size": (1, 2, 3)}, ""), draw)
    first = dial._picture.children
    dial.form.values = {"size": 2}
    assert dial.form.problem == "2 is too small" and dial._picture.children == first
    dial.form.values = {"size": 3}
    assert dial.form.problem == "" and dial._picture.children != first


def test_pictures_come_as_one_or_many():
    assert len(pictures(report(one_f_one_b()))) == 1
    assert len(pictures([report(one_f_one_b()), go.Figure()])) == 2
