"""GPU times with a fake GPU: marks become host nanoseconds, whatever the two clocks' offset and drift."""

import numpy as np
import pytest
import torch

from labkit.engine.cuda_clock import FIRST_MARK, CudaClock


class FakeGpu:
    """A GPU whose clock is 5 s off the host's and passes 1 ms for every event recorded; the host takes 10 ns a look."""

    def __init__(self) -> None:
        self.host, self.stream_ms = 0, 5000.0

    def host_ns(self) -> int:
        self.host += 10
        return self.host

    def event(self) -> "FakeEvent":
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.at_ms = gpu, None

    def record(self) -> None:
        self.gpu.stream_ms += 1
        self.at_ms = self.gpu.stream_ms

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.at_ms - self.at_ms


@pytest.fixture
def clock() -> CudaClock:
    gpu = FakeGpu()
    return CudaClock(gpu.event, lambda: None, gpu.host_ns)


def test_marks_become_host_times_and_other_numbers_stay(clock):
    marks = [clock.mark(), clock.mark()]
    times = np.array([[marks[0], marks[1]], [7, -1]])
    assert clock.resolve(times).tolist() == [[10 + 1_000_000, 10 + 2_000_000], [7, -1]]


def test_marks_grow_in_order_and_are_above_any_time(clock):
    marks = [clock.mark() for _ in range(3)]
    assert marks == sorted(marks)
    assert marks[0] >= FIRST_MARK > 2**61


def test_a_new_anchor_ties_the_clocks_together_again(clock):
    clock.resolve(np.array([clock.mark()]))
    mark = clock.mark()
    assert mark == FIRST_MARK + 1
    assert clock.resolve(np.array([mark])).tolist() == [20 + 1_000_000]  # from the second anchor, at host time 20


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_long_kernel_takes_its_time():
    clock = CudaClock()
    x = torch.randn(4096, 4096, device="cuda")
    start = clock.mark()
    for _ in range(50):
        x = torch.tanh(x @ x)
    end = clock.mark()
    start_ns, end_ns = clock.resolve(np.array([start, end]))
    assert end_ns - start_ns > 1_000_000


@pytest.mark.gpu
@pytest.mark.engine
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
def test_a_run_on_one_gpu_equals_serial_and_orders_its_events():
    import labkit

    trace = labkit.run(labkit.Plan(backend="nccl", steps=5, dtype="float64"), verify=True)
    assert trace.meta.equality["weight_max_abs_diff"] <= 1e-12
    rows = trace.of("forward")
    assert (rows["end_ns"] >= rows["start_ns"]).all()


@pytest.mark.gpu
@pytest.mark.engine
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("changes", [{"dp": 2}, {"tp": 2}, {"pp": 2}, {"dp": 2, "zero": 3}], ids=str)
def test_runs_on_two_gpus_equal_serial(changes):
    import labkit

    trace = labkit.run(labkit.Plan(backend="nccl", steps=5, dtype="float64", **changes), verify=True)
    assert trace.meta.equality["weight_max_abs_diff"] <= 1e-9
