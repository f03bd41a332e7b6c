"""Whatever is split, the training is the same: losses, gradients and weights equal the serial run's in float64."""

import pytest

from labkit.lab import run
from labkit.plan import Plan
from labkit.schedule import SCHEDULES

LIMIT = 1e-12
full = pytest.mark.full
RUNNABLE = list(SCHEDULES)
WHOLE_BACKWARD = [name for name in RUNNABLE if not SCHEDULES[name].splits_backward]

DATA = {
    "ddp": {},
    "accumulation": {"microbatches": 2},
    "small_buckets": {"bucket_mb": 0.01},
    "zero1": {"zero": 1},
    "zero2": {"zero": 2},
    "zero2_accumulation": {"zero": 2, "microbatches": 2},
    "zero3": {"zero": 3},
    "offload": {"zero": 3, "offload": True},
    "naive": {"grad_sync": "naive"},
    "ring": {"grad_sync": "ring"},
    "tree": {"grad_sync": "tree"},
    "gather": {"grad_sync": "gather"},
}
TENSOR = {
    "digits": {},
    "digits_by_hand": {"tensor": "by_hand"},
    "chars": {"task": "chars", "layers": 1, "heads": 8},
    "chars_by_hand": {"task": "chars", "layers": 1, "heads": 8, "tensor": "by_hand"},
    "chars_sequence_parallel": {"task": "chars", "layers": 1, "heads": 8, "sequence_parallel": True},
}


SIZES = [
    pytest.param(ranks, optimizer, marks=() if (ranks, optimizer) in ((2, "adam"), (4, "sgd"), (8, "adam")) else full)
    for ranks in (2, 4, 8)
    for optimizer in ("sgd", "adam")
]
"""Ranks and optimizers; every second combination only in `make test-full`."""


def assert_equal_to_serial(**changes) -> None:
    plan = Plan(**({"dtype": "float64", "steps": 5, "width": 32, "layers": 8, "global_batch": 32} | changes))
    trace = run(plan, verify=True)
    equality = trace.meta.equality
    assert equality["loss_max_abs_diff"] <= LIMIT
    assert equality["grad_max_abs_diff"] <= LIMIT
    assert equality["weight_max_abs_diff"] <= LIMIT
    assert equality["replicas_identical"]


@pytest.mark.parametrize(("ranks", "optimizer"), SIZES)
@pytest.mark.parametrize("name", DATA)
def test_data_parallel(name, ranks, optimizer):
    assert_equal_to_serial(dp=ranks, optimizer=optimizer, **DATA[name])


@pytest.mark.parametrize(("ranks", "optimizer"), SIZES)
@pytest.mark.parametrize("name", TENSOR)
def test_tensor_parallel(name, ranks, optimizer):
    assert_equal_to_serial(tp=ranks, optimizer=optimizer, **TENSOR[name])


@pytest.mark.parametrize(("ranks", "optimizer"), SIZES)
@pytest.mark.parametrize("schedule", RUNNABLE)
def test_pipeline(schedule, ranks, optimizer):
    assert_equal_to_serial(pp=ranks, layers=16, schedule=schedule, optimizer=optimizer)


@pytest.mark.parametrize("mixed", [{"pp": 2, "dp": 2}, {"pp": 2, "tp": 2}, {"pp": 2, "dp": 2, "tp": 2}], ids=str)
@pytest.mark.parametrize("schedule", RUNNABLE)
def test_pipeline_with_others(schedule, mixed):
    assert_equal_to_serial(schedule=schedule, optimizer="adam", **mixed)


@pytest.mark.parametrize("schedule", RUNNABLE)
def test_pipeline_with_zero2(schedule):
    assert_equal_to_serial(schedule=schedule, pp=2, dp=2, zero=2)


@pytest.mark.parametrize("schedule", WHOLE_BACKWARD)
def test_pipeline_with_zero3(schedule):
    assert_equal_to_serial(schedule=schedule, pp=2, dp=2, zero=3, optimizer="adam")


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("zero", [0, 2, 3])
def test_tensor_with_data_parallel(zero, optimizer):
    assert_equal_to_serial(tp=2, dp=2, zero=zero, optimizer=optimizer)


def test_three_axes_with_a_transformer():
    chars = {"task": "chars", "layers": 2, "global_batch": 16, "sequence_parallel": True}
    assert_equal_to_serial(**chars, pp=2, dp=2, tp=2, microbatches=2, optimizer="adam")


@pytest.mark.parametrize(
    "changes", [{"dp": 2}, {"tp": 2}, {"pp": 2}, {"dp": 2, "zero": 3}, {"dp": 2, "tp": 2}], ids=str
)
def test_recomputation(changes):
    assert_equal_to_serial(recompute=True, **changes)


@pytest.mark.parametrize("changes", [{"dp": 2}, {"pp": 2}, {"pp": 2, "schedule": "zbv"}, {"dp": 2, "zero": 3}], ids=str)
def test_convolutions(changes):
    assert_equal_to_serial(task="digits_cnn", width=8, layers=4, **changes)


OWN = """
0F0,0F1,0F2,0F3,0B1,0B0,0B3,0B2
1F0,1F1,1B1,1F2,1B0,1F3,1B3,1B2
"""


def test_an_own_schedule_from_text():
    """Backwards in an order no published schedule has."""
    assert_equal_to_serial(order=OWN, optimizer="adam")


def test_unequal_stages():
    assert_equal_to_serial(pp=2, split=(5, 3))


def test_without_synchronization_replicas_drift_apart():
    trace = run(Plan(dp=2, grad_sync="off", dtype="float64", steps=5, width=32), verify=True)
    assert not trace.meta.equality["replicas_identical"]
    assert trace.meta.equality["weight_max_abs_diff"] > 1e-6
