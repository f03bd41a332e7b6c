"""A class on one machine: the second visitor's run waits, sees its place in line, and then gets its result."""

import pytest
from servers import free_port, serve

PLAN = "#plan=steps={};dp=2;pp=2;layers=4;microbatches=2"


@pytest.fixture(scope="module")
def classroom(chromium, notebooks, tmp_path_factory):
    """Voila with four seats, and a line of its own."""
    from labkit.seats import Limits
    from labkit.view.voila import voila_command

    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**Limits(seats=4).environment(), "TMPDIR": f"{tmp_path_factory.mktemp('line')}"}.items():
            patch.setenv(name, value)
        private = tmp_path_factory.mktemp("class")
        with serve(voila_command(notebooks, port), port, "/", notebooks, private) as url:
            yield url


def opened(open_page, url: str, steps: int):
    page = open_page(f"{url}/voila/render/explorer.ipynb{PLAN.format(steps)}", height=1000)
    page.locator(".labkit-form").wait_for()
    page.wait_for_function("(steps) => document.querySelector('[aria-label=Steps]').value === steps", arg=str(steps))
    return page


def test_the_second_visitor_waits_in_line_and_then_gets_its_result(classroom, open_page):
    first, second = opened(open_page, classroom, 500), opened(open_page, classroom, 2)
    first.get_by_role("button", name="Run").click()
    first.wait_for_function("/about \\d+ s to go/.test(document.querySelector('.lk-status').textContent)")
    second.get_by_role("button", name="Run").click()
    second.wait_for_function("/^place 1 in line/.test(document.querySelector('.lk-status').textContent)")
    first.get_by_role("button", name="Cancel").click()
    second.locator(".labkit-report").wait_for()
    assert "replicas identical" in second.locator(".labkit-report").inner_text()
    first.get_by_text("Cancelled. The ranks were stopped.").wait_for()
