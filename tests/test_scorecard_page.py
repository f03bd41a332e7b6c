"""The scorecard page without a browser: with and without published tables, and a pair that really runs."""

import pytest

from labkit import lab
from labkit.dashboards import scorecard
from labkit.own_runs import Compared, Pair, Record
from labkit.plan import Plan

RECORD = Record("2026-11-30", "Linux", 2, {}, "", (Compared("replanned", "a -> pp 2", "step, ms", 90.0, 100.0),))


def test_without_tables_the_page_says_which_folder_to_give(tmp_path):
    nowhere = (tmp_path / "facts",)
    page = scorecard.published_page(scorecard.published(nowhere), nowhere)
    assert page.startswith("**The published tables are not here.**")
    assert "folder `facts` beside this notebook" in page and "`narayanan2021_table1*.csv`" in page
    assert "Rajbhandari et al. 2019" in page  # needs no file
    assert "\n# " not in page and "\n## " not in page  # it stands below the notebook's own heading


def test_a_folder_that_is_there_is_taken_and_what_it_lacks_is_said(tmp_path):
    folders = (tmp_path / "no", tmp_path)
    (tmp_path / "korthikanti2022_x.csv").write_text(_KORTHIKANTI)
    found = scorecard.published(folders)
    assert any("Korthikanti" in score.title for score in found)
    page = scorecard.published_page(found, folders)
    assert "not here" not in page
    assert "Not there, so not scored: narayanan2021_table1*.csv" in page


_KORTHIKANTI = """model,heads,hidden,layers,tp,pp,gpus,global_batch,microbatch,interleave_m,\
iter_s_full_recompute,iter_s_seqpar_selective
mine,64,6144,48,8,1,8,4,4,1,1.5,1.2
"""


def test_the_chart_holds_own_runs_and_published_rows(tmp_path):
    found = scorecard.published((tmp_path,))
    own, others = scorecard.errors_chart(RECORD, found).data
    assert list(own.x) == [pytest.approx(-0.1)]
    assert list(own.customdata) == ["a -> pp 2, step, ms"]
    assert len(others.x) == 4


@pytest.mark.engine
def test_a_chosen_pair_is_predicted_and_run():
    pairs = [Pair("pipeline of 4", {"microbatches": 12}), Pair("2 replicas", {"dp": 1, "steps": 2})]
    panel = scorecard.run_again(pairs)
    try:
        assert panel.form.values["pp"] == 4
        panel.form.values = panel.form.values | {"pair": 1}
        assert panel.form.plan_text == str(pairs[1].new)
        assert {axis: panel.form.values[axis] for axis in ("dp", "tp", "pp")} == {"dp": 1, "tp": 1, "pp": 1}
        panel.start()
        panel.wait(120)
    finally:
        lab.close()
    assert panel.form.failure == ""
    report, predicted, run = panel.children[1].children
    facts = dict(report.facts)
    assert {"step predicted", "step measured", "error"} <= set(facts)
    assert panel.trace.meta.source == "paced" and Plan.from_dict(panel.trace.meta.plan) == pairs[1].new
    assert (predicted.source, run.source) == ("predicted", "paced")
