"""Steps beside each other: the bar is the step, its words are the time and the rate."""

import example_traces as examples
import pytest

from labkit.comparison import numbers
from labkit.trace import Meta, from_events
from labkit.view.step_figures import step_figure


def steps_of(length_ns: int, batch: int | None):
    rows = [dict(kind="step", rank=0, step=0, start_ns=0, end_ns=length_ns)]
    return from_events(rows, Meta("paced", plan={"global_batch": batch} if batch else {}))


def test_a_bar_for_every_run_with_its_rate():
    slow, quick = steps_of(500_000_000, 64), steps_of(250_000_000, None)
    figure = step_figure({"slow": slow, "quick": quick})
    assert list(figure.data[0].x) == pytest.approx([500, 250])
    named = [one.text for one in figure.layout.annotations]
    assert named == ["<b>slow</b> · 500 ms · 128 samples/s", "<b>quick</b> · 250 ms"]
    assert numbers(slow).samples_per_s == 128


def test_runs_without_steps_are_left_out():
    figure = step_figure({"no": examples.empty(), "yes": steps_of(10**9, None)})
    assert [one.text for one in figure.layout.annotations] == ["<b>yes</b> · 1,000 ms"]
    figure = step_figure({"no": examples.empty()})
    assert not figure.data and "record='compute'" in figure.layout.annotations[0].text.replace("<br>", " ")
