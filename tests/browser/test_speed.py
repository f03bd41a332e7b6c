"""Frames a second while players play, and how long until the first picture. `make bench`: wants a quiet machine."""

import example_traces as examples
import pytest

from labkit.view.mesh_grid import mesh_grid
from labkit.view.player import link_players
from labkit.view.timeline import timeline

pytestmark = pytest.mark.bench

ROUNDS = 3
PLAYED = """async () => {
    const drawn = () => Number(document.querySelector('.labkit-timeline').dataset.draws);
    const before = drawn(), start = performance.now();
    await new Promise((done) => setTimeout(done, 2000));
    return (drawn() - before) / ((performance.now() - start) / 1000); }"""
FIRST = """async () => {
    const place = document.querySelector('[data-widget]'), made = await import('./' + place.dataset.widget + '.mjs');
    for (const remove of removers.splice(0)) remove();
    const start = performance.now();
    removers.push(made.default.render({ model: models[0], el: place }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - start; }"""


def linked() -> dict:
    """100,000 events with arrows, pointed at, and a second player that follows."""
    trace = examples.one_f_one_b(num_steps=300)
    line, mesh = timeline(trace), mesh_grid(trace)
    link_players(line, mesh)
    return {"line": line, "mesh": mesh}


def alone() -> dict:
    """A million events."""
    return {"line": timeline(examples.dense(1_000_000))}


@pytest.mark.parametrize("make", [linked, alone])
def test_players(make, bare, capsys):
    page = bare(make(), height=900)
    picture = page.locator(".lk-picture").first
    picture.hover(position={"x": 400, "y": 30})
    picture.focus()
    page.keyboard.press("Space")
    rate = max(page.evaluate(PLAYED) for _ in range(ROUNDS))
    first_ms = min(page.evaluate(FIRST) for _ in range(ROUNDS))
    with capsys.disabled():
        print(f"\n{make.__name__}: {rate:.0f} frames a second, first picture after {first_ms:.0f} ms")
