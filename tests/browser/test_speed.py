"""Frames a second while players play, and how long until the first picture. `make bench`: wants a quiet machine.

Beside the two ways to move a picture of a trace with plotly: its own frames, and a FigureWidget that the kernel moves.
"""

import json
import sys
import time
from pathlib import Path

import example_traces as examples
import nbformat
import pytest
from servers import free_port, serve

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import figure_fixture
from growth import growth_row
from long_trace import long_trace

from labkit.trace import Trace
from labkit.view.mesh_grid import mesh_grid
from labkit.view.player import link_players
from labkit.view.timeline import timeline

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

figure = figure_fixture.figure
ROUNDS, SIZES = 3, (1_000, 10_000, 100_000, 1_000_000)
FIRST_GOALS = {100_000: "0.5 s", 1_000_000: "1.5 s"}

PLAYED = """async () => {
    const drawn = () => Number(document.querySelector('.labkit-timeline').dataset.draws);
    const before = drawn(), start = performance.now();
    await new Promise((done) => setTimeout(done, 2000));
    return (drawn() - before) / ((performance.now() - start) / 1000); }"""
REFRESH = """async () => {
    let frames = 0; const start = performance.now();
    await new Promise((done) => {
        const next = (now) => { if (now - start > 2000) done(); else { frames++; requestAnimationFrame(next); } };
        requestAnimationFrame(next); });
    return frames / ((performance.now() - start) / 1000); }"""
FIRST = """async () => {
    const place = document.querySelector('[data-widget]'), made = await import('./' + place.dataset.widget + '.mjs');
    for (const remove of removers.splice(0)) remove();
    const start = performance.now();
    removers.push(await made.default.render({ model: models[0], el: place }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - start; }"""
ANIMATED = """async (times) => {
    const plot = document.querySelector('.js-plotly-plot'); let frames = 0;
    plot.on('plotly_animatingframe', () => frames++);
    Plotly.animate(plot, times, { frame: { duration: 0 }, transition: { duration: 0 } });
    const start = performance.now();
    await new Promise((done) => setTimeout(done, 3000));
    return frames / ((performance.now() - start) / 1000); }"""
REDRAWN = """() => {  // counted where it is drawn, since a page that is behind answers late
    const times = window.drawnAt = [];
    document.querySelector('.js-plotly-plot').on('plotly_afterplot', () => times.push(performance.now())); }"""
KERNEL = """import json, threading, time
import plotly.graph_objects as go
from pathlib import Path
widget = go.FigureWidget(json.loads(Path("figure.json").read_text()))
def play():
    while not Path("go").exists():
        time.sleep(0.1)
    for t in range({updates}):  # few: what the page cannot draw in time waits in line
        widget.data[1].x = [t % 1000 / 1000 * {end}] * 2
        time.sleep(1 / 60)
threading.Thread(target=play, daemon=True).start()
widget"""


def play(page) -> float:
    """Pictures drawn in a second, the most of a few rounds."""
    picture = page.locator(".lk-picture").first
    picture.hover(position={"x": 400, "y": 30})
    picture.focus()
    page.keyboard.press("Space")
    return max(page.evaluate(PLAYED) for _ in range(ROUNDS))


def sent_bytes(folder: Path) -> int:
    """What the page is made of: columns, their description, module and style."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def test_a_player(bare, tmp_path, figure):
    """Arrows, layers and communication are drawn; the first picture is from the widget's data to its second frame."""
    draws = []
    for num in SIZES:
        page = bare({"line": timeline(long_trace(num))}, height=900)
        rate, most = play(page), page.evaluate(REFRESH)
        first_s = [page.evaluate(FIRST) / 1e3 for _ in range(ROUNDS)]
        draws.append((num, min(first_s)))
        figure(
            f"player, {num:,} events: frames a second (the page's own: {most:.0f})", ours=f"{rate:.0f}",
            goal="60",
        )  # fmt: skip
        figure(
            f"player, {num:,} events: first picture", ours=f"{min(first_s):.2f} s",
            spread=f"{min(first_s):.2f} to {max(first_s):.2f} s", goal=FIRST_GOALS.get(num, "-"),
        )  # fmt: skip
        size = sent_bytes(tmp_path)
        figure(f"player, {num:,} events: bytes to the browser", ours=f"{size / 1e6:.1f} MB, {size / num:.0f} an event")
        page.close()
    figure("growth: first picture of a player against events", **growth_row(draws))


def test_two_linked_players(bare, figure):
    """100,000 events with arrows, pointed at, and a second player that follows."""
    trace = examples.one_f_one_b(num_steps=300)
    line, mesh = timeline(trace), mesh_grid(trace)
    link_players(line, mesh)
    rate = play(bare({"line": line, "mesh": mesh}, height=900))
    figure("player, 100,000 events, a linked second player: frames a second", ours=f"{rate:.0f}", goal="60")


def plotly_timeline(trace: Trace) -> dict:
    """What one would draw with plotly: a bar for every event, and a line that moves."""
    import plotly.graph_objects as go

    events = trace.events
    took, ranks = events["end_ns"] - events["start_ns"], events["rank"].to_list()
    colours = [f"#{40 * code % 256:02x}{90 * code % 256:02x}a0" for code in events["kind"].to_physical().to_list()]
    bars = go.Bar(base=events["start_ns"].to_list(), x=took.to_list(), y=ranks, orientation="h", marker_color=colours)
    head = go.Scatter(x=[0, 0], y=[-0.5, max(ranks) + 0.5], mode="lines")
    return json.loads(go.Figure([bars, head]).to_json())


@pytest.mark.parametrize("num", [1_000, 10_000])
def test_plotly_frames(num, open_page, figure):
    import plotly

    trace = long_trace(num)
    shown, end = plotly_timeline(trace), trace.events["end_ns"].max()
    times = [{"data": [{"x": [k / 1000 * end] * 2}], "traces": [1]} for k in range(1000)]
    page = open_page("about:blank", height=900)
    page.set_content("<div id=plot></div>")
    page.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")
    start = time.perf_counter()
    page.evaluate("async (shown) => { await Plotly.newPlot('plot', shown); }", shown)
    first_s = time.perf_counter() - start
    rate = page.evaluate(ANIMATED, times)
    figure(
        f"plotly frames, {num:,} events: frames a second (first picture {first_s:.1f} s)", ours="-", peer=f"{rate:.1f}"
    )


@pytest.mark.parametrize("num", [1_000, 10_000])
def test_plotly_moved_by_the_kernel(num, chromium, tmp_path, open_page, figure):
    """A FigureWidget in a page of Voila's; the kernel moves its line sixty times a second, or as often as it can."""
    from labkit.view.voila import voila_command

    trace, notebooks = long_trace(num), tmp_path / "notebooks"
    notebooks.mkdir()
    (notebooks / "figure.json").write_text(json.dumps(plotly_timeline(trace)))
    program = KERNEL.replace("{end}", str(trace.events["end_ns"].max())).replace("{updates}", str(600_000 // num))
    cell = nbformat.v4.new_code_cell(program)
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=metadata), notebooks / "moved.ipynb")
    port, private = free_port(), tmp_path / "private"
    private.mkdir()
    with serve(voila_command(notebooks, port), port, "/", notebooks, private) as url:
        page = open_page(f"{url}/voila/render/moved.ipynb", height=900)
        page.locator(".js-plotly-plot .main-svg").first.wait_for()
        page.evaluate(REDRAWN)
        (notebooks / "go").touch()
        page.wait_for_timeout(12_000)
        drawn_ms = page.evaluate("drawnAt")
        page.goto("about:blank")
    rate = 1e3 * (len(drawn_ms) - 1) / (drawn_ms[-1] - drawn_ms[0])
    figure(f"plotly FigureWidget moved by the kernel, {num:,} events: frames a second", ours="-", peer=f"{rate:.1f}")
