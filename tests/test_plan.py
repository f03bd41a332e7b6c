"""A plan is checked when it is made: what cannot run is refused with the value, the rule and the way out."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.link import PRESETS
from labkit.plan import Plan, PlanError
from labkit.schedule import SCHEDULES

REFUSED = [
    ({"dp": 2, "pp": 3, "layers": 8, "global_batch": 12}, ["8 layers", "pp 3", "choose pp 1, 2, 4 or 8", "split="]),
    ({"pp": 4, "layers": 4, "schedule": "1f1b", "microbatches": 2}, ["1f1b", "2", "4"]),
    ({"pp": 2, "schedule": "dualpipev", "microbatches": 2}, ["dualpipev", "4"]),
    ({"dp": 3}, ["global_batch 32", "dp 3", "choose 33"]),
    ({"dp": 2, "microbatches": 5}, ["16 samples", "5 microbatches", "choose global_batch 40"]),
    ({"dp": 32}, ["32 ranks", "at most 16", "max_ranks"]),
    ({"task": "digit"}, ["unknown task 'digit'", "did you mean 'digits'", "chars"]),
    ({"schedule": "gpip", "pp": 2}, ["unknown schedule 'gpip'", "did you mean 'gpipe'", "dualpipev"]),
    ({"optimizer": "adm"}, ["unknown optimizer", "adam"]),
    ({"schedule": "gpipe"}, ["pp is 1"]),
    ({"virtual": 2}, ["pp is 1"]),
    ({"zero": 2}, ["dp is 1"]),
    ({"zero": 4, "dp": 2}, ["zero 4", "0 (DDP), 1, 2 and 3"]),
    ({"zero": 1, "dp": 2, "tp": 2}, ["zero 1", "use zero 2"]),
    ({"zero": 3, "dp": 2, "pp": 2, "schedule": "zbv"}, ["zero 3", "wrong gradients", "use zero 2"]),
    ({"offload": True, "dp": 2}, ["offload", "zero is 0", "set zero 2 or 3"]),
    ({"sequence_parallel": True}, ["tp is 1"]),
    ({"sequence_parallel": True, "tp": 2}, ["digits has none", "use chars"]),
    ({"task": "digits_cnn", "tp": 2}, ["digits_cnn has none to cut"]),
    ({"tp": 3}, ["width 64", "tp 3", "choose 66"]),
    ({"task": "chars", "tp": 8, "heads": 4}, ["heads 4", "choose 8"]),
    ({"task": "chars", "width": 30}, ["width 30", "4 heads", "choose 32"]),
    ({"grad_sync": "ring", "dp": 2, "zero": 2}, ["grad_sync 'ring'", "zero 0"]),
    ({"tensor": "by_hand"}, ["tp 2 or more"]),
    ({"recompute": True, "pp": 2, "schedule": "zbv"}, ["splits backward", "recompute=False"]),
    ({"layers": 65}, ["layers 65", "at most 64"]),
    ({"layers": 0}, ["layers=0", "at least 1"]),
    ({"dp": "two"}, ["dp='two'", "whole number"]),
    ({"dp": True}, ["dp=True", "whole number"]),
    ({"lr": -1}, ["lr=-1", "above 0"]),
    ({"lr": float("nan")}, ["lr=nan", "finite"]),
    ({"recompute": "yes"}, ["recompute='yes'", "true or false"]),
    ({"record": ("everything",)}, ["record 'everything'", "compute, sync, memory"]),
    ({"split": (3, 3), "pp": 2}, ["split (3, 3)", "2 stages", "sum to 4"]),
    ({"pace": "forward=20"}, None),
    ({"pace": "forwards=20ms"}, ["forwards", "known are backward, forward"]),
    ({"pace": "forward=-1ms"}, ["forward_s=-0.001", "0 or more"]),
    ({"pace": "forward=fast"}, ["'fast' is not a time"]),
    ({"link": "nvlnk4"}, ["unknown link 'nvlnk4'", "did you mean 'nvlink4'"]),
    ({"link": "latency=1ms"}, ["give latency and bandwidth"]),
    ({"link": "latency=1ms,bandwidth=0MB/s"}, ["above 0"]),
    ({"value_limit_bytes": "big"}, ["'big' is not a size"]),
    ({"task": "chars", "tp": 3, "width": 48, "heads": 3, "tensor": "by_hand"}, ["tp 3 by hand", "2, 4 or 8"]),
    ({"tp": 4, "layers": 1}, ["tp 4", "10 outputs", "2 layers"]),
    ({"seed": 2**45}, ["seed=", "at most"]),
    ({"task": "chars", "context": 500_000}, ["context=500000", "at most"]),
    ({"split": (1.5, 2.5), "pp": 2}, ["split=(1.5, 2.5)", "every stage"]),
    ({"split": 5}, ["split=5"]),
    ({"bucket_mb": 1e30}, ["bucket_mb", "at most 1e6"]),
    ({"lr": 10**400}, ["lr=", "at most"]),
    ({"time_scale": 10**400}, ["time_scale="]),
    ({"width": 10**6}, ["width 1000000", "choose a smaller width"]),
    ({"record": None}, ["record=None", "compute, sync, memory"]),
    ({"record": 5}, ["record=5"]),
    ({"record": ("memory",)}, ["record compute too"]),
    ({"schedule": ["a"], "pp": 2}, ["schedule=['a']", "give text"]),
    ({"optimizer": []}, ["optimizer=[]"]),
    ({"order": 5}, ["order=5"]),
    ({"pace": 5}, ["pace 5", "at least one duration"]),
    ({"pace": ""}, ["at least one duration"]),
    ({"pace": "forward"}, ["give each duration once"]),
    ({"pace": "forward=1ms,forward=2ms"}, ["give each duration once"]),
    ({"link": 5}, ["link=5", "preset's name"]),
    ({"link": {"foo": "eth10"}}, ["link for foo", "pp, dp, tp"]),
    ({"slow": "0=2"}, ["give a pace too"]),
    ({"slow": "2", "pace": "forward=1ms"}, ["slow='2'", "2=1.5"]),
    ({"slow": {4: 2.0}, "pace": "forward=1ms"}, ["slow rank 4", "0 to 0"]),
    ({"slow": {0: 0.5}, "pace": "forward=1ms"}, ["by 0.5", "from 1 to 100"]),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_cannot_run_is_refused_with_the_way_out(changes, words):
    if words is None:
        Plan(**changes)
        return
    with pytest.raises(PlanError) as caught:
        Plan(**changes)
    for word in words:
        assert word in str(caught.value)


OWN = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def test_an_own_schedule_says_how_many_ranks_and_microbatches_there_are():
    plan = Plan(order=OWN)
    assert (plan.schedule, plan.pp, plan.microbatches, plan.virtual) == ("own", 2, 2, 1)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.pipeline.to_text() == OWN


@pytest.mark.parametrize(
    ("order", "changes", "words"),
    [
        ("0F0,0B0", {"pp": 2}, ["pp 2, but the order has 1"]),
        (OWN, {"microbatches": 4}, ["microbatches 4, but the order has 2"]),
        (OWN, {"schedule": "gpipe"}, ["both given"]),
        ("0F0,0B0\n1B0,1F0\n", {}, ["1B0"]),
        ("0F0,0B0,0F1\n1F0,1B0,1F1,1B1\n", {}, ["0B1"]),
        ("0F0,hello", {}, ["hello"]),
        (None, {"schedule": "own", "pp": 2}, ["needs an order"]),
        ("0F0,0B0,1F0,1B0\n2F0,2B0\n", {}, ["ranks 0, 1 wait for ever"]),
        ("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n", {}, ["order [1, 0]", "come as [0, 1]"]),
        ("0F0,0B0\n1F0,2F0,2B0,1B0\n", {}, ["3 stages to 2 ranks"]),
    ],
)
def test_an_own_schedule_that_cannot_run_is_refused(order, changes, words):
    with pytest.raises(PlanError) as caught:
        Plan(order=order, **changes)
    for word in words:
        assert word in str(caught.value)


def test_defaults_depend_on_the_rest():
    assert Plan(pp=4).schedule == "1f1b"
    assert Plan(pp=4).microbatches >= 4
    assert Plan(pp=2, schedule="zbv").virtual == 2
    assert Plan(pp=2, schedule="naive").microbatches == 1
    assert Plan().microbatches == 1
    assert Plan(optimizer="adam").lr == 3e-3


def test_slow_ranks_make_their_own_pace_longer():
    plan = Plan(dp=4, pace="forward=20ms,backward=40ms", slow="2=1.5,3=2")
    assert plan.slow == {2: 1.5, 3: 2.0} and Plan.from_json(plan.to_json()) == plan
    assert [plan.pace_of(rank).forward_s for rank in range(4)] == pytest.approx([0.02, 0.02, 0.03, 0.04])
    assert plan.pace_of(2).backward_s == pytest.approx(0.06) and plan.serial().slow is None


def test_changed_fields_take_along_what_hangs_on_them():
    plan = Plan(pp=4, layers=8, schedule="zbv", optimizer="adam")
    assert plan.vary(schedule="gpipe").virtual == 1 and plan.vary(optimizer="sgd").lr == 0.1
    assert plan.vary(pp=1).schedule is None and plan.vary(seed=3).virtual == plan.virtual == 2
    with pytest.raises(PlanError, match="unknown plan field 'laers'"):
        plan.vary(laers=4)


def test_a_link_for_all_axes_or_one_for_each():
    assert set(Plan(link="pcie4").link) == {"pp", "dp", "tp"}
    mixed = Plan(dp=2, link={"dp": "eth10", "tp": "latency=1us,bandwidth=100GB/s"}).link
    assert mixed["dp"] == PRESETS["eth10"]
    assert mixed["tp"].bandwidth_bytes_s == 100e9


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(dp=2, tp=2, pp=2, schedule="interleaved_1f1b", layers=8, link={"pp": "ib200"}),
        Plan(pace="forward=20ms,backward=40ms,optimizer=1ms", record=("sync",), split=(4,)),
        Plan(pp=2, split=(1, 3), value_limit_bytes="4KiB"),
    ],
)
def test_json_there_and_back(plan):
    assert Plan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["dp"] == plan.dp
    assert eval(repr(plan).replace("Plan", "dict")) is not None


def test_bad_plan_files(tmp_path):
    with pytest.raises(PlanError, match="not JSON"):
        Plan.from_json("{")
    with pytest.raises(PlanError, match="JSON list"):
        Plan.from_json("[1]")
    with pytest.raises(PlanError, match=r"unknown plan field 'ranks'"):
        Plan.from_json('{"ranks": 3}')
    with pytest.raises(PlanError, match="cannot read the plan file"):
        Plan.load(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="cannot read"):
        Plan.load(tmp_path / "binary.json")


def test_a_plan_prints_what_differs_from_the_defaults():
    assert str(Plan(dp=2)) == "Plan(dp=2, microbatches=1, virtual=1, lr=0.1)"


def test_the_serial_plan_trains_the_same():
    plan = Plan(dp=2, tp=2, pp=2, layers=4, zero=2, microbatches=2, pace="forward=1ms", link="eth10", seed=7, steps=9)
    serial = plan.serial()
    assert serial.num_ranks == 1
    assert serial.pace is serial.link is None
    same = ("task", "layers", "width", "global_batch", "steps", "optimizer", "lr", "seed", "dtype")
    assert all(getattr(serial, name) == getattr(plan, name) for name in same)


DEGREE = st.sampled_from([1, 2, 3, 4])


@settings(max_examples=300, deadline=None)
@given(
    values=st.fixed_dictionaries(
        {
            "dp": DEGREE, "tp": DEGREE, "pp": DEGREE, "zero": st.integers(0, 3), "layers": st.integers(1, 64),
            "global_batch": st.integers(1, 64), "task": st.sampled_from(["digits", "chars", "digits_cnn"]),
        },
        optional={
            "schedule": st.sampled_from(list(SCHEDULES)), "microbatches": st.integers(1, 16),
            "virtual": st.integers(1, 3), "sequence_parallel": st.booleans(), "recompute": st.booleans(),
            "offload": st.booleans(), "optimizer": st.sampled_from(["sgd", "adam"]),
        },
    )
)  # fmt: skip
def test_any_plan_is_either_consistent_or_refused_in_words(values):
    try:
        plan = Plan(**values)
    except PlanError as error:
        assert len(str(error)) > 20
        return
    assert plan.num_ranks == plan.dp * plan.tp * plan.pp == plan.mesh.num_ranks
    assert sum(plan.layers_of_stage) == plan.layers
    assert plan.replica_batch * plan.dp == plan.global_batch
    assert plan.replica_batch % plan.microbatches == 0
    assert Plan.from_json(plan.to_json()) == plan
