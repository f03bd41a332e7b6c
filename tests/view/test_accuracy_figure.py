"""The chart of errors: every row a dot at its error, every table a line with its name and number of rows."""

from labkit.view.accuracy_figure import accuracy_figure

GROUPS = {
    "runs of our own": {"Pairs": [("pp 2", -0.01), ("pp 4", 0.05)], "Nothing": []},
    "published tables": {"A table with a title that is longer than a narrow page can hold in one line": [("row", 0.3)]},
}


def test_every_row_is_a_dot_with_its_case():
    pairs, table = accuracy_figure(GROUPS).data
    assert (list(pairs.x), list(pairs.customdata)) == ([-0.01, 0.05], ["pp 2", "pp 4"])
    assert (list(table.x), list(table.customdata)) == ([0.3], ["row"])
    assert min(pairs.y) > max(table.y)  # the first group is on top


def test_groups_differ_by_symbol_too_and_stand_once_in_the_legend():
    figure = accuracy_figure({name: {**tables, "more": [("x", 0.0)]} for name, tables in GROUPS.items()})
    looks = {(dots.name, dots.marker.symbol, dots.marker.color) for dots in figure.data}
    assert len(looks) == 2 and len({symbol for _, symbol, _ in looks}) == 2
    assert [dots.name for dots in figure.data if dots.showlegend] == list(GROUPS)


def test_captions_tell_the_table_and_its_rows_and_hold_on_a_narrow_page():
    captions = [one.text for one in accuracy_figure(GROUPS).layout.annotations]
    assert captions[0] == "Pairs ·\u00a02"  # the number never stands alone in a line
    assert captions[1].replace("<br>", " ").endswith("can hold in one line ·\u00a01")
    assert max(len(line) for line in captions[1].split("<br>")) <= 44
    assert len(captions) == 2  # a table without rows has no line


def test_equal_errors_do_not_cover_each_other():
    (dots,) = accuracy_figure({"a": {"b": [("x", 0.0)] * 20}}).data
    gaps = [abs(a - b) for i, a in enumerate(dots.y) for b in dots.y[:i]]
    assert min(gaps) > 0.005 and max(gaps) < 0.45
