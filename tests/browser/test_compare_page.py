"""Compare in Voila: two plans run, in a table, as timelines, and foretold from each other."""

from scene_checks import is_cut

COMPARE = "voila/render/compare.ipynb"
SMALL = "steps=2;pp=2;layers=4;microbatches=4;forward_ms=10;backward_ms=20"


def test_two_plans_side_by_side(voila, open_page):
    page = open_page(f"{voila}/{COMPARE}#a={SMALL}&b={SMALL};schedule=gpipe", height=1000)
    page.get_by_role("button", name="Run both").wait_for()
    page.wait_for_function("document.querySelectorAll('[aria-label=Schedule]')[1]?.value === 'gpipe'")
    page.wait_for_function("document.querySelectorAll('[aria-label=Steps]')[0].value === '2'")
    page.get_by_role("button", name="Run both").click()
    table = page.locator(".labkit-table", has_text="B against A")
    table.wait_for()
    assert "They learn the same: their losses are equal." in table.inner_text()
    rows = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()
    }
    assert rows["ranks"][:2] == ["2", "2"] and rows["loss"][2] == "equal"
    assert page.locator(".labkit-timeline").count() == 2
    page.get_by_role("tab", name="Predicted").click()
    chart = page.locator(".labkit-chart", has_text="Predicted beside measured")
    chart.locator(".point").first.wait_for()
    assert chart.locator(".barlayer .point").count() == 4  # a prediction and a run for A and for B


def test_the_pair_is_in_the_address_and_one_below_the_other_on_a_narrow_page(voila, open_page):
    page = open_page(f"{voila}/{COMPARE}", width=360)
    forms = page.locator(".labkit-form")
    page.get_by_role("button", name="Run both").wait_for()
    assert not is_cut(page)
    one, other = forms.nth(0).bounding_box(), forms.nth(1).bounding_box()
    assert other["y"] >= one["y"] + one["height"]
    forms.nth(0).get_by_label("Layers", exact=True).fill("16")
    forms.nth(0).get_by_label("Layers", exact=True).blur()
    page.wait_for_function("location.hash.includes('a=layers=16')")
    forms.nth(1).get_by_label("Layers", exact=True).fill("7")
    forms.nth(1).get_by_label("Layers", exact=True).blur()
    page.get_by_text("B cannot run: see above").wait_for()
    assert page.get_by_role("button", name="Run both").is_disabled()


def test_clusters_are_computed_while_the_form_is_changed(voila, open_page):
    page = open_page(f"{voila}/{COMPARE}", height=1000)
    table = page.locator(".labkit-table").last
    table.get_by_text("one step").wait_for()
    before = table.inner_text()
    side = page.locator(".labkit-form", has_text="B, computed")
    side.get_by_label("Cluster", exact=True).select_option("eth10")
    page.wait_for_function(
        "(before) => [...document.querySelectorAll('.labkit-table')].at(-1).innerText !== before", arg=before
    )
    assert "longer than one of A" in table.inner_text()
