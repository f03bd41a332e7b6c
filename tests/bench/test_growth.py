"""How time grows with layers, ranks and events. `make bench`. Each line is also in assets/growth.svg.

What the browser draws is in browser/test_speed.py; importing profiler files in test_import.py.
"""

import time
from collections.abc import Callable

import pytest
from growth import growth_row
from long_trace import long_trace

import labkit
from labkit.plan import Plan
from labkit.replay import planned_trace, replay
from labkit.schedule import Durations, generate, simulate
from labkit.schedule.waves import waves

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """The least of several rounds: others on the machine only ever add."""
    took = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took)


def step_seconds(plan: Plan) -> float:
    labkit.run(plan)
    return min(labkit.run(plan).meta.seconds["step_median"] for _ in range(3))


def test_step_against_layers(figure):
    sizes = (8, 16, 32, 64)
    points = [(n, step_seconds(Plan(dp=2, layers=n, steps=12))) for n in sizes]
    figure("growth: step time against layers, two replicas", **growth_row(points))


def test_step_against_ranks(figure):
    """The same batch for each rank; beyond the machine's cores ranks take turns, so this grows with them."""
    points = [(n, step_seconds(Plan(dp=n, layers=4, global_batch=32 * n, steps=12))) for n in (2, 4, 6, 8)]
    figure("growth: step time against ranks, data parallel", **growth_row(points))


def test_replay_against_events(figure):
    points = []
    for microbatches in (32, 128, 512, 2048):
        trace = planned_trace(generate("1f1b", 16, microbatches), Durations(forward=1e6), hop_ns=1000)
        points.append((trace.events.height, seconds(lambda trace=trace: replay(trace))))
    figure("growth: `replay` against events", **growth_row(points))


def test_load_and_timeline_against_events(figure, tmp_path):
    points = []
    for num in (1_000, 10_000, 100_000, 1_000_000):
        path = long_trace(num).save(tmp_path / f"{num}.parquet")
        points.append((num, seconds(lambda path=path: labkit.timeline(labkit.load(path)))))
    figure("growth: load and `timeline` against events", **growth_row(points))


def test_analysis_against_events(figure):
    points = []
    for num in (1_000, 10_000, 100_000, 1_000_000):
        trace = long_trace(num)
        points.append((num, seconds(lambda trace=trace: labkit.breakdown_figure(trace))))
    figure("growth: `breakdown_figure` against events", **growth_row(points))


def test_schedule_against_actions(figure):
    points = []
    for microbatches in (64, 128, 256, 512):
        order = generate("1f1b", 64, microbatches)

        def both(order=order) -> None:
            waves.cache_clear()
            simulate(order, Durations())

        points.append((2 * 64 * microbatches, seconds(both)))
    figure("growth: a schedule laid out and timed, against actions", **growth_row(points))
