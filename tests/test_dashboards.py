"""What the dashboards are made of, without starting a process."""

import time
from pathlib import Path

import pytest

from labkit import dashboards
from labkit.dashboards import form as forms
from labkit.dashboards import two_plans as comparing
from labkit.dashboards.conditions import cannot_replay, changes_of, what_if
from labkit.dashboards.two_clusters import MODELS, training_of
from labkit.dashboards.words import facts
from labkit.plan import PlanError
from labkit.predict import predict
from labkit.replay import Changes, replay, step_ns
from labkit.trace import Meta, from_events, load
from labkit.view.fields import form_groups, start_values

ASSETS = Path(__file__).parents[1] / "assets"
PIPELINE = load(ASSETS / "pipeline_1f1b.parquet")
OPENING = start_values(form_groups(forms.choices()))


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch):
    for module in ("form", "any_plan", "two_plans"):
        monkeypatch.setattr(f"labkit.dashboards.{module}.warm_up", lambda: None)


@pytest.mark.parametrize("name", forms.MORE_PRESETS)
def test_every_preset_is_a_plan_that_can_run(name):
    assert forms.plan_from(OPENING | forms.MORE_PRESETS[name]).num_ranks <= 8


def test_the_form_offers_all_that_a_plan_takes():
    groups = {one.name: one for group in form_groups(forms.choices()) for one in group.fields}
    for name in ("task", "schedule", "grad_sync", "tensor", "dtype", "optimizer"):
        for value, _ in groups[name].choices:
            with_it = OPENING | {name: value}
            try:
                forms.plan_from(with_it)
            except PlanError as error:
                assert "unknown" not in str(error)


@pytest.mark.parametrize(
    "odd",
    [
        {"pp": 3},
        {"dp": 3},
        {"layers": 7},
        {"pp": 1, "dp": 2, "zero": 1, "tp": 2},
        {"schedule": "dualpipev", "microbatches": 2},
    ],
)
def test_what_cannot_run_gets_a_near_form_that_can(odd):
    values = OPENING | odd
    with pytest.raises(PlanError):
        forms.plan_from(values)
    near, words = forms.nearest_values(values)
    assert forms.plan_from(near) and words
    changed = {name for name in near if near[name] != values.get(name)}
    assert 1 <= len(changed) <= 3 and all(name in words for name in changed)


def test_what_nothing_near_can_mend_gets_none():
    assert forms.nearest_values(OPENING | {"steps": -1}) is None


def test_the_explorer_checks_offers_and_shares():
    explorer = dashboards.explorer()
    assert explorer.form.problem == "" and explorer.form.link_name == "plan"
    explorer.form.values = {**explorer.form.values, "pp": 3}
    assert "do not split" in explorer.form.problem and explorer.form.link_text == "pp=3"
    end = time.monotonic() + 20
    while not explorer.form.nearest and time.monotonic() < end:
        time.sleep(0.02)
    explorer.form.values = explorer.form.nearest["values"]
    assert explorer.form.problem == ""


def test_compare_runs_only_when_both_can():
    pair = dashboards.compare()
    assert [lab.form.link_name for lab in pair.labs.values()] == ["a", "b"]
    assert not any(lab.form.is_run_here for lab in pair.labs.values())
    assert pair.form.problem == "" and "zbv" in pair.form.plan_text
    pair.labs["B"].form.values = {**pair.labs["B"].form.values, "layers": 7}
    assert pair.form.problem == "B cannot run: see above"
    pair.start()
    assert pair.form.state == "idle"


def half_as_long():
    return replay(PIPELINE, Changes(compute=0.5)).with_meta(losses=PIPELINE.meta.losses, equality=None)


def test_two_runs_in_a_table():
    table = comparing.beside(PIPELINE, half_as_long())
    rows = {row[0]: row[1:] for row in table.rows}
    share = step_ns(half_as_long()) / step_ns(PIPELINE) - 1
    assert rows["step"][2] == f"{share:+.1%}"
    assert rows["loss"][2] == "equal" and rows["off the serial run by at most"][1] == "not compared"
    assert table.sentences == [
        f"A step of B is {-share:.1%} shorter than one of A.",
        "They learn the same: their losses are equal.",
    ]


def test_different_trainings_are_not_called_wrong():
    other = PIPELINE.with_meta(plan=PIPELINE.meta.plan | {"seed": 1}, losses=(9.0, 9.0))
    assert "different trainings (seed differ)" in comparing.verdict(PIPELINE, other)[1]
    wrong = PIPELINE.with_meta(losses=tuple(loss + 0.1 for loss in PIPELINE.meta.losses))
    assert "do NOT learn the same" in comparing.verdict(PIPELINE, wrong)[1]


def test_two_runs_are_shown_in_tabs_that_open():
    table, tabs = comparing.shown(PIPELINE, half_as_long())
    for name in tabs.bar.names:
        assert type(tabs.choose(name)).__name__ in ("VBox", "GridBox")
    assert table.heading.startswith("A: digits, pp 4")


def test_what_if_answers_like_a_replay_and_quickly():
    asked = what_if(PIPELINE)
    assert dict(asked.report.facts)["a step takes"] == "+0.0%"
    took = []
    for compute in (0.5, 2, 4):
        begun = time.perf_counter()
        asked.form.values = {**asked.form.values, "compute": compute}
        took.append(time.perf_counter() - begun)
        share = step_ns(replay(PIPELINE, Changes(compute=compute))) / step_ns(PIPELINE) - 1
        assert dict(asked.report.facts)["a step takes"] == f"{share:+.1%}"
    print(f"an answer took {min(took):.3f} s")


def test_sliders_become_changes():
    values = {"compute": 1, "slow_rank": "2", "slow_factor": 1.5, "link": "eth1", "free_syncs": False}
    assert changes_of(values) == Changes(slow_ranks={2: 1.5}, link="eth1")
    assert changes_of(values | {"free_syncs": True, "slow_rank": ""}) == Changes(no_sync=True)


def test_the_answers_timeline_is_made_when_its_tab_is_open():
    asked = what_if(PIPELINE)
    assert asked._picture.children == ()
    asked._tabs.choose("As a timeline")
    first = asked._picture.children
    asked.form.values = {**asked.form.values, "compute": 2}
    assert asked._picture.children != first and asked._picture.children[0].source == "replayed"


def test_a_trace_that_replay_does_not_explain_is_not_asked():
    rows = [dict(rank=0, kind="kernel", layer="gemm", step=0, start_ns=0, end_ns=60)]
    rows += [dict(rank=0, kind="sync", op="all_reduce", axis="dp", step=0, start_ns=60, end_ns=100)]
    profiled = from_events(rows, Meta("imported", num_ranks=1))
    assert "which kernel waits for which" in cannot_replay(profiled)
    note = what_if(profiled)
    assert "at most: rank 0 40.0%" in note.text
    assert "cannot be replayed" in cannot_replay(from_events([], Meta("measured")))


def dropped(*files: tuple[str, bytes]):
    page = dashboards.your_trace()
    drop, shown = page.children
    sent = []
    drop.send = sent.append
    drop._on_message(drop, {"do": "begin", "files": [{"name": name, "size": len(data)} for name, data in files]}, [])
    while sent and drop.state == "receiving":
        number = sent.pop()["file"]
        data = files[number][1]
        at = len(data) - drop._left[number]
        drop._on_message(drop, {"do": "piece", "file": number}, [data[at : at + drop.piece_bytes]])
    drop.wait(30)
    return drop, shown


def test_a_trace_of_ours_can_be_dropped():
    drop, shown = dropped(("run.parquet", (ASSETS / "pipeline_1f1b.parquet").read_bytes()))
    assert drop.problem == "" and ("ranks", "4") in shown.children[0].children[0].facts


def profile(rank: int, name: str = "gemm") -> bytes:
    import json

    def event(cat, name, ts, dur):
        return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": {}}

    events = [event("kernel", name, 0, 60), event("kernel", "ncclDevKernel_AllReduce", 60, 40)]
    return json.dumps({"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 2}}).encode()


def test_profiler_files_of_several_ranks_can_be_dropped_and_markup_stays_text():
    files = [(f"r{rank}.json", profile(rank, "<img src=x onerror=alert(1)>")) for rank in range(2)]
    drop, shown = dropped(*files)
    assert drop.problem == ""
    results = shown.children[0]
    assert ("ranks", "2") in results.children[0].facts
    assert "Batch" not in results.tabs.bar.names  # a profiler file names no samples
    assert "kernel waits" in results.tabs.choose("What if").text


@pytest.mark.parametrize(
    ("data", "told"), [(b"<html>", "hello.json is no profiler file"), (b"PAR1 not really", "hello.json cannot be read")]
)
def test_what_is_no_trace_is_told_in_its_own_name(data, told):
    drop, shown = dropped(("hello.json", data))
    assert drop.problem.startswith(told) and shown.children == ()


def test_facts_leave_out_what_a_trace_cannot_say():
    told = facts(PIPELINE)
    assert told["bubble"] == "27.3%" and told["pp sync per step"] == "48 KiB" and told["most memory held"]
    assert facts(from_events([], Meta("measured"))) == {}


def test_two_clusters_are_computed_as_predict_does():
    page = dashboards.clusters()
    found = {name: predict(*training_of(dict(lab.form.values))) for name, lab in page.labs.items()}
    assert found["A"].cluster.name != found["B"].cluster.name and found["A"].training == found["B"].training
    rows = {row[0]: row[1:] for row in page.table.rows}
    assert rows["one step"] == [f"{one.step_s:.3g} s" for one in found.values()] + [
        f"{found['B'].step_s / found['A'].step_s - 1:+.1%}"
    ]
    drawn = page.chart.figure["data"]
    for side, one in enumerate(found.values()):
        compute = next(bar for bar in drawn if bar["name"] == "compute")
        assert compute["x"][side] == pytest.approx(100 * one.breakdown["compute"] / one.step_s)
        assert sum(bar["x"][side] for bar in drawn) == pytest.approx(100)


def test_a_training_that_makes_no_sense_is_told_and_another_shows_again():
    page = dashboards.clusters()
    form = page.labs["A"].form
    before = page.chart.figure
    form.values = {**form.values, "tp": 7}
    assert "64 heads do not divide over tp 7" in form.problem and page.table.rows == []
    form.values = {**form.values, "tp": 16}
    assert form.problem == "" and len(page.table.rows) == 6 and page.chart.figure != before
    assert form.link_text == "tp=16"


def test_what_does_not_fit_gets_advice():
    page = dashboards.clusters()
    form = page.labs["B"].form
    form.values = {**form.values, "model": list(MODELS)[-1]}
    assert page.table.sentences[1].startswith("B does not fit: its fullest GPU needs")
