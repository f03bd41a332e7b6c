"""The dashboard's form in a page without Jupyter: what it sends, what it shows."""

import pytest

from labkit.view.controls import lab_panel


def check(values: dict) -> str:
    return "a plan"


def form(**state):
    made = lab_panel(lambda *_: None, check, {"Data parallel": {"dp": 4, "pp": 1}}).form
    for name, value in state.items():
        made.set_trait(name, value)
    return made


def sent(page) -> list:
    return page.evaluate("models[0].sent")


def test_run_is_sent_and_values_follow_the_inputs(bare):
    page = bare({"form": form()})
    layers = page.get_by_label("Layers", exact=True)
    layers.fill("12")
    layers.blur()
    assert page.evaluate("models[0].get('values').layers") == 12
    page.get_by_role("button", name="Run").click()
    assert sent(page) == [{"do": "run"}]


def test_presets_fill_the_form(bare):
    page = bare({"form": form()})
    page.get_by_role("button", name="Data parallel").click()
    assert page.evaluate("[models[0].get('values').dp, models[0].get('values').pp]") == [4, 1]
    assert "data 4 × tensor 1 × pipeline 1 = 4 ranks" in page.locator(".lk-ranks").inner_text()
    assert page.get_by_label("Schedule").is_disabled()


def test_a_problem_is_told_and_run_is_off(bare):
    page = bare({"form": form()})
    page.evaluate("models[0].set('problem', '<i>8 layers</i> do not split over 3 stages: choose 2 or 4')")
    assert "<i>8 layers</i>" in page.get_by_role("alert").inner_text()
    assert page.get_by_role("button", name="Run").is_disabled()


def test_progress_of_every_rank_and_cancel(bare):
    page = bare({"form": form(state="running", num_steps=4, steps_done=[2, 1])})
    assert page.locator(".lk-bar").count() == 2
    assert "step 1 of 4" in page.get_by_role("status").inner_text()
    page.get_by_role("button", name="Cancel").click()
    assert sent(page) == [{"do": "cancel"}]


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_the_form_wraps(bare, width):
    page = bare({"form": form()}, width=width)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
