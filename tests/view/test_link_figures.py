"""Charts of runs over links: what is drawn is what `link_study` says, and what is replayed says so."""

import example_traces as examples
from link_traces import over

from labkit.link_study import link_table, replayed_steps, step_us
from labkit.view.link_figures import exposure_figure, link_line_figure, step_curve_figure

RUNS = {"slow": over(1e9), "fast": over(4e9)}


def test_the_line_and_its_points():
    line, points = link_line_figure([*RUNS.values()]).data
    assert list(points.x) == [1.0, 0.25] and [round(y, 6) for y in points.y] == [85.0, 25.0]
    assert line.name.startswith("5.00 µs + 80.0 kB / bandwidth") and "off by 0.00 µs" in points.name


def test_no_line_through_one_link():
    assert "two different links" in link_line_figure([over(1e9)]).layout.annotations[0].text.replace("<br>", " ")
    assert not link_line_figure([examples.data_parallel()]).data


def test_bars_are_the_parts_of_a_step():
    figure, table = exposure_figure(RUNS), link_table(RUNS)
    assert [list(bar.x) for bar in figure.data] == [
        table[name].to_list() for name in ("compute_us", "hidden_us", "exposed_us", "idle_us")
    ]
    assert list(figure.data[0].y) == ["slow", "fast"]


def test_curves_are_replayed_and_points_are_runs():
    curve = replayed_steps(RUNS["slow"], ["latency=5us,bandwidth=1GB/s", "latency=5us,bandwidth=4GB/s"])
    figure = step_curve_figure({"replayed": curve}, RUNS)
    assert list(figure.data[0].y) == curve["step_us"].to_list()
    assert list(figure.data[1].y) == [step_us(run) for run in RUNS.values()]  # by bandwidth
    assert list(figure.data[1].text) == ["slow", "fast"]
