"""Tabs make a page when it is first opened, and only then."""

import example_traces as examples
import ipywidgets

from labkit.view.results import Results, charts
from labkit.view.tabs import Note, Tabs, close_all


def test_a_page_is_made_once_and_when_it_is_opened():
    made = []

    def page(name):
        return lambda: made.append(name) or ipywidgets.VBox()

    tabs = Tabs({name: page(name) for name in "abc"}, label="pages")
    assert made == ["a"]
    tabs.bar.chosen = 2
    first = tabs.choose("a")
    assert made == ["a", "c"] and tabs.choose("a") is first
    shown = [page.layout.display for page in tabs.children[1:]]
    assert shown == [None, "none"]


def test_a_page_that_cannot_be_made_says_why_and_the_others_stand():
    def broken():
        raise ValueError("<b>no values</b> were kept")

    tabs = Tabs({"good": ipywidgets.VBox, "bad": broken}, label="pages")
    page = tabs.choose("bad")
    assert isinstance(page, Note) and page.text == "bad: <b>no values</b> were kept"
    assert isinstance(tabs.choose("good"), ipywidgets.VBox)


def test_closing_closes_what_is_inside():
    inner = Note(text="x")
    close_all(ipywidgets.VBox([ipywidgets.VBox([inner])]))
    assert inner.comm is None


def test_results_open_with_one_scene_and_every_tab_can_be_opened():
    for trace in (examples.one_f_one_b(num_steps=2), examples.mixed(), examples.single(), examples.empty()):
        results = Results(trace, {"bubble": "27 %"})
        assert len(results.tabs.children) == 2  # the bar and the timeline
        assert results.children[0].facts[0] == ("bubble", "27 %")
        for name in results.tabs.bar.names:
            assert not isinstance(results.tabs.choose(name), Note)


def test_scenes_of_one_trace_are_linked():
    tabs = Results(examples.one_f_one_b(num_steps=2)).tabs
    players = [tabs.choose(name) for name in ("Timeline", "Mesh", "Memory")]
    groups = {player.link_group for player in players}
    assert len(groups) == 1 and groups != {""}


def test_notes_are_told_once_above_all_scenes():
    trace = examples.one_f_one_b()
    assert list(Results(trace).children[0].notes) == list(trace.meta.notes)


def test_a_sentence_leads_to_its_moment():
    results = Results(examples.one_f_one_b(num_steps=2))
    sent = []
    results.tabs.choose("Timeline").send = sent.append
    found = results.tabs.choose("Why ranks wait")
    found._handle_custom_msg({"do": "show", "t_ns": found.ranks[0]["gaps"][0][1]}, [])
    assert results.tabs.bar.chosen == 0
    assert sent == [{"do": "seek", "t_ns": float(found.ranks[0]["gaps"][0][1])}]
    found._handle_custom_msg({"do": "show", "t_ns": "<script>"}, [])
    assert len(sent) == 1


def test_charts_without_data_are_left_out_unless_all_are():
    titles = [chart.label.partition(".")[0] for chart in charts(examples.data_parallel()).children]
    assert titles == [
        "Loss",
        "Loss",
        "Time of each rank",
        "Sync time against bytes",
        "Bandwidth of syncs against bytes",
    ]
    assert len(charts(examples.empty()).children) == 1
