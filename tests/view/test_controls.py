"""The dashboard: what the form makes, and how a run ends."""

import threading
import time

import example_traces as examples
import pytest

from labkit.trace import Trace
from labkit.view.controls import lab_panel
from labkit.view.fields import form_groups, plan_values, start_values
from labkit.view.report import facts_of, proof_of

WAIT_S = 10


def check(values: dict) -> str:
    """Stands for a Plan: refuses what does not split."""
    if 8 % values["pp"]:
        raise ValueError(f"8 layers do not split over {values['pp']} stages: choose 2 or 4")
    return f"plan with pp {values['pp']}"


def run(values, progress, cancelled):
    progress([1, 2], 2)
    return examples.one_f_one_b(num_steps=2)


def test_form_values_become_plan_fields():
    plan = plan_values(start_values(form_groups()))
    assert plan["pace"] == "forward=20ms,backward=40ms"
    assert plan["schedule"] == "1f1b" and plan["width"] == 64
    assert not {"paced", "forward_ms", "lr", "link", "virtual"} & set(plan)


def test_what_does_not_apply_is_left_out():
    plan = plan_values(
        start_values(form_groups()) | {"pp": 1, "virtual": 2, "zero": 2, "offload": True, "paced": False}
    )
    assert not {"schedule", "virtual", "pace", "zero"} & set(plan)  # without a pipeline, pace and replicas
    assert plan["offload"] is True  # ZeRO is set, though it does not apply: the plan will say so


@pytest.mark.parametrize("name", ["layers", "forward_ms", "microbatches"])
def test_a_number_that_is_missing_is_told(name):
    values = start_values(form_groups()) | {name: None}
    with pytest.raises(ValueError, match="is empty: give a number from"):
        plan_values(values)
    assert plan_values(values | {"paced": False, "layers": 8, "microbatches": 8})  # durations do not apply then


def test_the_defaults_are_a_plan():
    plan = pytest.importorskip("labkit.plan")
    assert plan.Plan.from_dict(plan_values(start_values(form_groups()))).num_ranks == 4


def test_an_illegal_plan_is_explained_and_not_run():
    lab = lab_panel(run, check)
    lab.form.values = {**lab.form.values, "pp": 3}
    assert "choose 2 or 4" in lab.form.problem and not lab.form.plan_text
    lab.start()
    assert lab.form.state == "idle" and lab.trace is None
    lab.form.values = {**lab.form.values, "pp": 2}
    assert not lab.form.problem and lab.form.plan_text == "plan with pp 2"


def test_a_run_shows_its_trace():
    lab = lab_panel(run, check)
    lab.start()
    lab.wait(WAIT_S)
    assert (lab.form.state, lab.form.failure) == ("idle", "")
    assert lab.form.steps_done == [1, 2] and lab.form.num_steps == 2
    shown = [type(widget).__name__ for widget in lab.children[1].children]
    assert shown == ["Timeline", "Report", "ChartView"]


def test_the_second_run_replaces_the_first():
    lab = lab_panel(run, check)
    for _ in range(2):
        lab.start()
        lab.wait(WAIT_S)
    assert len(lab.children[1].children) == 3


def test_a_run_does_not_block_and_can_be_cancelled():
    def forever(values, progress, cancelled: threading.Event):
        cancelled.wait(WAIT_S)
        raise RuntimeError("ranks were killed")

    lab = lab_panel(forever, check)
    started = time.monotonic()
    lab.start()
    assert lab.form.state == "running" and time.monotonic() - started < 1
    lab.start()  # a second press does nothing
    lab.cancel()
    lab.wait(WAIT_S)
    assert lab.form.state == "idle" and "Cancelled" in lab.form.failure and lab.trace is None


@pytest.mark.parametrize(
    ("error", "told"),
    [(RuntimeError("rank 2 died in fc3"), "rank 2 died in fc3"), (KeyError("x"), "KeyError: 'x' (test_controls.py")],
)
def test_a_failed_run_is_told_and_the_form_lives_on(error, told):
    def fails(values, progress, cancelled):
        raise error

    lab = lab_panel(fails, check)
    lab.start()
    lab.wait(WAIT_S)
    assert lab.form.state == "idle" and told in lab.form.failure


def test_messages_from_the_page_start_and_stop():
    lab = lab_panel(run, check)
    lab._on_message(lab.form, {"do": "run"}, [])
    lab.wait(WAIT_S)
    assert lab.trace is not None
    lab._on_message(lab.form, {"do": "anything else"}, [])
    assert lab.form.state == "idle"


def test_a_preset_sets_the_whole_form_and_only_fields_that_exist():
    form = lab_panel(run, check, {"Two": {"pp": 2}}).form
    assert form.presets == {"Two": form.values | {"pp": 2}}
    with pytest.raises(ValueError, match="microbatch"):
        lab_panel(run, check, {"Two": {"microbatch": 2}})


def test_choices_come_from_outside():
    form = lab_panel(run, check, choices={"task": ("chars", "own"), "link": ("nvlink4",)}).form
    fields = {one["name"]: one for group in form.groups for one in group["fields"]}
    assert form.values["task"] == "chars" and form.values["schedule"] == "1f1b"
    assert [value for value, _ in fields["link"]["choices"]] == ["", "nvlink4"]


def test_the_proof_is_told_in_numbers():
    equality = dict(loss_max_abs_diff=1.2e-7, grad_max_abs_diff=0.0, replicas_identical=True)
    proof, note = proof_of(examples.one_f_one_b().with_meta(equality=equality))
    assert proof == [("loss", "1.2e-07"), ("gradients", "0"), ("replicas identical", "yes")] and "one rank" in note
    assert proof_of(examples.one_f_one_b()) == ([], "")


def test_facts_come_from_the_metadata():
    facts = facts_of(examples.one_f_one_b(num_steps=2).with_meta(seconds={"total": 2.5, "step_median": 1.0}))
    assert facts == {"ranks": "4", "events": facts["events"], "loss": "2.3 → 1.84", "whole run": "2.50 s"}


def test_a_failed_run_still_shows_what_was_recorded():
    class Failed(RuntimeError):
        trace: Trace = examples.one_f_one_b()

    def fails(values, progress, cancelled):
        raise Failed("rank 2 died in fc3")

    lab = lab_panel(fails, check)
    lab.start()
    lab.wait(WAIT_S)
    assert lab.form.failure == "rank 2 died in fc3"
    assert lab.trace is Failed.trace and type(lab.children[1].children[0]).__name__ == "Timeline"


def test_the_nearest_plan_is_offered_only_for_what_the_form_still_holds():
    asked, answer = [], threading.Event()

    def nearest(values):
        asked.append(values["pp"])
        answer.wait(WAIT_S)
        return values | {"pp": 4}, "pp 4"

    lab = lab_panel(run, check, nearest=nearest)
    lab.form.values = {**lab.form.values, "pp": 3}
    assert lab.form.problem and lab.form.nearest == {}  # the search takes its time, the problem is told at once
    lab.form.values = {**lab.form.values, "pp": 6}
    answer.set()
    until(lambda: lab.form.nearest)
    assert lab.form.nearest["words"] == "pp 4" and lab.form.nearest["values"]["pp"] == 4
    assert asked == [3, 6]
    lab.form.values = lab.form.nearest["values"]
    assert not lab.form.problem and lab.form.nearest == {}


def until(is_so, timeout_s: float = WAIT_S) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_form_is_told_as_text_and_takes_one():
    lab = lab_panel(run, check, link_name="plan")
    assert lab.form.link_text == ""
    lab.form.values = {**lab.form.values, "pp": 2, "lr": 0.5}
    assert lab.form.link_text == "lr=0.5;pp=2"
    lab._on_message(lab.form, {"do": "take", "text": "pp=8;paced=off"}, [])
    assert (lab.form.values["pp"], lab.form.values["paced"], lab.form.values["lr"]) == (8, False, None)
    lab._on_message(lab.form, {"do": "take", "text": "pp=5"}, [])
    assert "pp='5'" in lab.form.failure and lab.form.values["pp"] == 8
