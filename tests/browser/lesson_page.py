"""A lesson as a reader meets it, in Voila or in JupyterLab: play, turn knobs, answer checks, look at it.

In: the fixtures `open_page`, `voila`, `jupyterlab`, and a notebook's name. Out: a page, and verbs on it. `open_page`
judges what leaves the host and what fails in the page's scripts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

SHOTS = Path(__file__).parents[2] / "test-results"

RUN_ALL = """async () => {
  const panel = jupyterapp.shell.currentWidget;
  await panel.context.ready; await panel.sessionContext.ready;
  await jupyterapp.commands.execute("notebook:run-all-cells");
}"""

OUTPUTS = """() => jupyterapp.shell.currentWidget.content.widgets
  .filter((cell) => cell.model.type === "code").flatMap((cell) => cell.model.outputs.toJSON())"""


def in_voila(open_page, voila: str, name: str, *, num_forms: int = 1, theme: str = "light", **options):
    """The page once its last form (a lesson's knobs) is there. Nothing on it may be a traceback."""
    page = open_page(f"{voila}/voila/render/{name}.ipynb?theme={theme}", **{"height": 1000, **options})
    page.locator(".labkit-form").nth(num_forms - 1).wait_for()
    assert "import labkit" not in page.content()  # the source is not shown
    assert page.locator('[data-mime-type="application/vnd.jupyter.error"], .jp-mod-error').count() == 0
    return page


def in_jupyterlab(open_page, jupyterlab: str, name: str):
    """The page and what all cells put out, as plain data, once all have run. None may have failed."""
    page = open_page(f"{jupyterlab}/lab/tree/{name}.ipynb?reset", width=1400, height=1000)
    page.wait_for_function("window.jupyterapp?.shell.currentWidget?.sessionContext")
    page.evaluate(RUN_ALL)
    outputs = page.evaluate(OUTPUTS)
    assert [one["evalue"] for one in outputs if one["output_type"] == "error"] == []
    return page, outputs


def printed(outputs: list[dict]) -> str:
    """All text that cells printed."""
    return "".join("".join(one["text"]) for one in outputs if one.get("name") == "stdout")


def play(page, player) -> None:
    """The picture moves while it plays. However slow the machine is: this waits for the moment to change."""
    picture, time = player.locator(".lk-picture"), player.locator(".lk-time")
    picture.scroll_into_view_if_needed()
    page.wait_for_function(MOMENT_IS_OTHER, arg=[time.element_handle(), ""])
    before, at = picture.screenshot(), time.inner_text()
    picture.focus()
    page.keyboard.press("Space")
    page.wait_for_function(MOMENT_IS_OTHER, arg=[time.element_handle(), at])
    page.keyboard.press("Space")
    assert picture.screenshot() != before


MOMENT_IS_OTHER = "([time, at]) => time.textContent !== at"


def told(page, player, key: str) -> str:
    """What stands below the picture after a key was pressed in it, e.g. "End"."""
    player.locator(".lk-picture").focus()
    page.keyboard.press(key)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return player.locator(".lk-facts").inner_text()


def answer(page, question: str, text: str) -> str:
    """Answer the check whose question holds these words, with a number or one of its choices; returns the reply."""
    check = page.locator(".labkit-ask").filter(has_text=question)
    if check.get_by_role("radio").count():
        check.get_by_label(text, exact=True).check()
    else:
        check.get_by_role("textbox").fill(text)
        check.get_by_role("button", name="Check").click()
    return check.locator(".lk-reply").inner_text()


def turn(page, field: str, steps: int) -> None:
    """Turn a slider by so many positions, to the right or, with a minus, to the left."""
    slider = page.locator(f'.lk-field[data-field="{field}"] input')
    for _ in range(abs(steps)):
        slider.press("ArrowRight" if steps > 0 else "ArrowLeft")


@contextlib.contextmanager
def another(page, player) -> Iterator[None]:
    """Around the turn of a knob: ends when the player has made way for another one."""
    old = player.element_handle()
    yield
    page.wait_for_function("(old) => !old.isConnected", arg=old)
    player.wait_for()


def choose(page, field: str, text: str, *, form: int = 0) -> None:
    """Choose from the list of a form's field, or set its switch with "on" or "off"."""
    found = page.locator(".labkit-form").nth(form).locator(f'[data-field="{field}"]')
    if found.locator("select").count():
        found.locator("select").select_option(label=text)
    else:
        found.locator("input").set_checked(text == "on")


def chart_line(page, title: str, *, line: int = 0, number: int = -1) -> list[float]:
    """The heights of a line of a chart, as plotly drew them; of several charts of that title the last."""
    chart = page.locator(".labkit-chart").filter(has=page.get_by_text(title, exact=True)).nth(number)
    plot = chart.locator(".js-plotly-plot")
    plot.locator(".main-svg").first.wait_for()
    return plot.evaluate("(plot, line) => [...plot.calcdata[line]].map((point) => point.y)", line)


def scroll_to_cell(page, number: int) -> None:
    """Bring a cell of JupyterLab's notebook into view; what is far away is not drawn."""
    page.evaluate("(number) => jupyterapp.shell.currentWidget.content.scrollToItem(number)", number)


def keep_picture(page, name: str) -> None:
    """The whole lesson as `test-results/<name>.png`, to be looked at."""
    SHOTS.mkdir(exist_ok=True)
    height = page.evaluate("Math.max(...[...document.querySelectorAll('*')].map((one) => one.scrollHeight))")
    page.set_viewport_size({"width": page.viewport_size["width"], "height": min(height, 12_000)})
    page.wait_for_timeout(500)
    page.screenshot(path=SHOTS / f"{name}.png")


HIGHEST_OF_LAST_CHART = """(highest) => {
  const plot = [...document.querySelectorAll(".labkit-chart .js-plotly-plot")].at(-1);
  return plot?.calcdata && Math.abs(Math.max(...plot.calcdata[0].map((point) => point.y)) - highest) < 1e-6 * highest;
}"""
"""For `wait_for_function`: the last chart has drawn a line whose highest point is this."""
