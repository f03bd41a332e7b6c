"""The dashboard's form in a page without Jupyter: what it sends, what it shows."""

import pytest
from scene_checks import SMALLEST, UNMARKED, is_cut

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
    assert not is_cut(page)


def test_the_nearest_plan_is_a_button(bare):
    near = {"values": {"pp": 4, "layers": 8}, "words": "pp 4"}
    page = bare({"form": form(problem="8 layers do not split over 3 stages", nearest=near)})
    page.get_by_role("button", name="Use pp 4").click()
    assert page.evaluate("models[0].get('values').pp") == 4
    page.evaluate("models[0].set('problem', ''); models[0].set('nearest', {})")
    assert page.get_by_role("button", name="Use pp 4").count() == 0


def test_the_rest_of_the_plan_opens_on_demand(bare):
    page = bare({"form": form()})
    width = page.get_by_label("Width", exact=True)
    assert not width.is_visible()
    page.get_by_text("More of the plan").click()
    width.fill("32")
    width.blur()
    assert page.evaluate("models[0].get('values').width") == 32
    assert page.get_by_label("Sequence parallel").is_disabled()  # it needs tensor parallel


def test_the_plan_is_in_the_pages_address_and_comes_from_there(bare):
    page = bare({"form": form(link_name="plan", link_text="pp=2")})
    page.evaluate("models[0].set('link_text', 'dp=2;pp=2')")
    assert page.evaluate("location.hash") == "#plan=dp=2;pp=2"
    page.evaluate("location.hash = '#plan=tp=2'")
    page.wait_for_function("models[0].sent.length")
    assert sent(page) == [{"do": "take", "text": "tp=2"}]
    page.evaluate("models[0].set('link_text', '')")
    assert page.evaluate("location.hash") == ""


def test_a_plan_can_be_pasted_as_text(bare):
    page = bare({"form": form(link_name="plan", link_text="pp=2")})
    page.get_by_role("button", name="Share").click()
    text = page.get_by_label("This plan as text")
    assert text.input_value() == "pp=2"
    text.fill("<img src=x onerror=alert(1)>")
    text.press("Enter")
    assert {"do": "take", "text": "<img src=x onerror=alert(1)>"} in sent(page)


def test_no_text_is_small_and_jupyters_keys_are_kept_off(bare):
    page = bare({"form": form(link_name="plan", problem="no", nearest={"values": {}, "words": "pp 4"})})
    page.get_by_role("button", name="Share").click()
    page.get_by_text("More of the plan").click()
    assert page.evaluate(SMALLEST) >= 11
    assert page.evaluate(UNMARKED) == 0
