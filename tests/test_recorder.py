"""The recorder and the emulated device, with a clock in hand. No process is started."""

import weakref

import numpy as np
import pytest
import torch

from labkit.board import Board, board_bytes
from labkit.engine import device as device_module
from labkit.engine.device import Device
from labkit.engine.recorder import CODE, END, Recorder
from labkit.engine.tracer import Tracer
from labkit.engine.wire import Wire
from labkit.event import FIELDS
from labkit.mesh import Mesh
from labkit.pace import Pace, carried_ns


class FakeTime:
    """A clock that moves only when told to, or when somebody sleeps."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def monotonic_ns(self) -> int:
        self.now_ns += 1  # so that spinning ends
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(device_module, "time", fake)
    return fake


MS = 1_000_000


def test_a_paced_operation_ends_at_its_start_plus_duration(clock):
    device = Device(Pace(forward_s=0.02))
    device.start_step()
    start_ns = device.now()
    device.advance(20 * MS, ("forward", 0))
    clock.now_ns += 2 * MS  # real work, done at the end of the slot
    device.worked(("forward", 0))
    assert device.settle(20 * MS) == pytest.approx(2 * MS, abs=1000)  # the first time it cannot know
    assert device.now() == start_ns + 20 * MS
    device.advance(20 * MS, ("forward", 0))
    clock.now_ns += 2 * MS
    device.worked(("forward", 0))
    assert device.settle(20 * MS) < 10  # now 2 ms are kept free for it; this clock moves when it is read
    assert device.now() == start_ns + 40 * MS
    assert clock.now_ns == pytest.approx(device.now(), abs=1000)


def test_too_much_real_work_pushes_the_device(clock):
    device = Device(Pace(forward_s=0.02))
    device.start_step()
    start_ns = device.now()
    device.advance(20 * MS, ("forward", 0))
    clock.now_ns += carried_ns(20 * MS) + MS
    late_ns = device.settle(20 * MS)
    assert late_ns > carried_ns(20 * MS)
    assert device.now() == start_ns + 20 * MS + late_ns


def test_a_sync_moves_the_device_to_its_completion(clock):
    device = Device(Pace(forward_s=0.02))
    device.start_step()
    device.block_until(device.now() + 7 * MS)
    start_ns = device.now()
    device.block_until(start_ns - 1)  # complete already
    assert device.now() == start_ns


def test_time_scale_multiplies_set_durations():
    assert Device(Pace(forward_s=0.02), time_scale=10).set_ns(0.02) == 200 * MS


def test_without_a_pace_the_device_is_the_hosts_clock(clock):
    device = Device()
    assert not device.paced
    before = device.now()
    clock.now_ns += 5
    assert device.now() >= before + 5


def test_processor_time_is_asked_for_once_in_20_us_and_never_runs_back(clock, monkeypatch):
    answers = iter([1_000, 1_500, 90_000])
    monkeypatch.setattr(clock, "thread_time_ns", lambda: next(answers), raising=False)
    cpu_ns = Device().cpu_ns
    assert [cpu_ns(100_000), cpu_ns(115_000)] == [1_000, 16_000]  # carried on, as if it had run
    assert cpu_ns(120_000) == 16_000  # it had not
    assert cpu_ns(500_000) == 90_000


def rows_of(part) -> np.ndarray:
    return np.frombuffer(part.rows, dtype=np.int64).reshape(-1, len(FIELDS))


def test_past_its_limit_a_recorder_only_counts():
    recorder = Recorder(0, ["a"], max_events=3)
    for i in range(5):
        recorder.span(CODE["forward"], i, i + 1)
    part = recorder.take()
    assert len(rows_of(part)) == 3
    assert part.dropped == 2
    recorder.span(CODE["forward"], 9, 10)
    assert recorder.take().dropped == 1


def test_syncs_that_have_not_completed_stay_until_they_have():
    recorder = Recorder(0, ["a"], max_events=10)
    codes = {"op": recorder.ops("send"), "group": recorder.groups([0, 1]), "dtype": recorder.dtypes("float32")}
    sync = recorder.sync(5, peer=1, size_bytes=4, seq=0, **codes)
    recorder.span(CODE["forward"], 1, 2)
    assert len(rows_of(recorder.take())) == 1
    sync[END] = 9
    part = recorder.take()
    assert rows_of(part)[0, END] == 9
    assert part.names.ops == ["send"]
    assert part.names.groups == [[0, 1]]


def test_values_are_copies_and_the_tensor_is_let_go():
    recorder = Recorder(0, ["a"], max_events=10, value_limit_bytes=16)
    tensor = torch.tensor([1.0, 2.0])
    recorder.value("input", tensor, 0)
    recorder.value("input", torch.zeros(100), 0)
    tensor[0] = 5
    part = recorder.take()
    assert [(shape, np.frombuffer(data, np.float32).tolist()) for shape, data in part.values] == [([2], [1.0, 2.0])]


@pytest.fixture
def board_file(tmp_path):
    with open(tmp_path / "board", "w+b") as file:
        file.truncate(board_bytes(4))
        yield file


def test_ranks_read_each_others_arrivals_and_never_an_earlier_runs(board_file):
    ranks = [Board(board_file.fileno(), 4, rank=r, run=1) for r in range(2)]
    ranks[0].arrive(0, 7, 100)
    assert ranks[1].last_arrival([0, 1], 0, 7) is None
    ranks[1].arrive(0, 7, 130)
    assert ranks[0].last_arrival([0, 1], 0, 7) == 130
    ranks[0].message_arrives(1, 3, 55)
    assert ranks[1].message_arrival(0, 3) == 55
    assert ranks[1].message_arrival(0, 4) is None
    later = Board(board_file.fileno(), 4, rank=1, run=2)
    assert later.message_arrival(0, 3) is None
    assert later.last_arrival([0, 1], 0, 7) is None


def test_the_parent_sees_what_a_rank_does(board_file):
    rank = Board(board_file.fileno(), 4, rank=2)
    rank.doing(CODE["forward"], 1, 2, 3, -1, 99)
    seen = Board(board_file.fileno(), 4).activity(2)
    assert (seen.count, seen.kind, seen.step, seen.microbatch, seen.layer, seen.since_ns) == (
        1,
        CODE["forward"],
        1,
        2,
        3,
        99,
    )


def traced_layer(recorder):
    mesh, device = Mesh(), Device()
    tracer = Tracer(device, Wire(mesh, device, recorder=recorder), recorder)
    layer = torch.nn.Linear(2, 2)
    tracer.attach(0, [(0, layer)])
    return tracer, layer


def test_every_hook_is_put_back():
    tracer, layer = traced_layer(Recorder(0, ["a"], max_events=100))
    assert "forward" in vars(layer)
    tracer.close()
    assert "forward" not in vars(layer) and not layer._forward_hooks and not layer._forward_pre_hooks


def test_no_tensor_is_kept_alive_by_recording():
    recorder = Recorder(0, ["a"], max_events=100, value_limit_bytes=1000)
    tracer, layer = traced_layer(recorder)
    x = torch.ones(3, 2, requires_grad=True)
    with tracer.work(CODE["forward"], 0, 0):
        y = layer(x)
    with tracer.work(CODE["backward"], 0, 0):
        y.sum().backward()
    gone = [weakref.ref(x), weakref.ref(y)]
    del x, y
    assert [reference() for reference in gone] == [None, None]
    kinds = rows_of(recorder.take())[:, 0].tolist()
    assert [kinds.count(CODE[kind]) for kind in ("forward", "backward", "stage_forward", "stage_backward")] == [1] * 4
