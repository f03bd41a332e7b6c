"""One rank's life: join, train, report, leave; or under torchrun: `python -m labkit.engine.worker --plan P --out DIR`.

In: a `Job`. Out: messages to the parent: ready, step done with the part recorded so far,
the result, or an error with its traceback. A rank that fails says so and is killed by its parent.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import time
from pathlib import Path
from typing import Protocol

import cloudpickle
import torch
import torch.distributed as dist

from labkit.board import Board
from labkit.engine import comm
from labkit.engine.cuda_clock import CudaClock
from labkit.engine.device import Device
from labkit.engine.faulty import FaultyRecorder
from labkit.engine.host_clock import HostClock, node_name
from labkit.engine.parallelize import device_mesh
from labkit.engine.recorder import Recorder
from labkit.engine.state import gather_state
from labkit.engine.tasks import Task, task_of
from labkit.engine.tracer import Tracer
from labkit.engine.train import Training
from labkit.engine.wire import Wire
from labkit.faults import Fault
from labkit.hosts import ClockReading
from labkit.job import Job, Outcome
from labkit.part import Part, RankFile, encode_part
from labkit.plan import Plan, PlanError

_COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=30)  # the parent notices faults long before
_REPORT_EVERY_NS = 100_000_000


class Reports(Protocol):
    """Whom a rank tells how far it is."""

    def begins(self, layers: tuple[str, ...]) -> None: ...

    def joined(self) -> None: ...

    def step_done(self, steps: int, part: Part | None) -> None: ...

    def fails(self, part: Part | None) -> None: ...


def carry_out(
    job: Job,
    rank: int,
    store: dist.Store | None,
    board: Board | None,
    reports: Reports,
) -> Outcome:
    """Train as the plan says. `reports` hears the layers' names, then after steps (or a failure) what was recorded
    since."""
    began_ns = time.monotonic_ns()
    plan = job.plan
    task = cloudpickle.loads(job.task) if job.task is not None else task_of(plan)
    device = _device(plan, rank)
    reports.begins(task.names)
    session = _Session(plan, task, rank, board, job.fault)
    torch.manual_seed(plan.seed)
    session.join(store)
    try:
        reports.joined()
        mesh = device_mesh(plan, device)
        place = plan.mesh.coordinate(rank)
        training = Training(plan, task, mesh, device, session.tracer, session.wire, dp_rank=place["dp"])
        losses, step_seconds, first = _train(plan, training, session, reports, began_ns)
        session.wire.stop_recording()
        state = gather_state(training.stages) if job.with_state else None
        return Outcome(
            layers=task.names,
            losses=losses,
            step_seconds=step_seconds,
            first_step_seconds=first,
            num_buckets=training.num_buckets(),
            state=state if place["dp"] == place["tp"] == 0 else None,
            fingerprint=state.fingerprint() if state else None,
            versions={"torch": str(torch.__version__)},
        )
    except BaseException:
        with contextlib.suppress(Exception):  # the error that is under way matters more
            reports.fails(session.take_part())
        raise
    finally:
        session.leave()


def _device(plan: Plan, rank: int) -> str:
    """The kind of device, and on GPUs this process's own one made current."""
    if plan.backend != "nccl":
        return "cpu"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    return "cuda"


def _train(
    plan: Plan, training: Training, session: _Session, reports: Reports, began_ns: int
) -> tuple[list[list[float]], list[float], float]:
    losses, seconds, first = [], [], 0.0
    reported_ns = began_ns
    for step in range(plan.steps):
        start_ns = time.monotonic_ns()
        losses.append(training.step(step))
        end_ns = time.monotonic_ns()
        seconds.append((end_ns - start_ns) / 1e9)
        if step == 0:
            first = (end_ns - began_ns) / 1e9
        if end_ns - reported_ns > _REPORT_EVERY_NS or step == plan.steps - 1:
            reported_ns = end_ns
            reports.step_done(step + 1, session.take_part())
    return losses, seconds, first


class _Session:
    """The recorder, the emulated device and the process group of one run on one rank."""

    def __init__(self, plan: Plan, task: Task, rank: int, board: Board | None, fault: Fault | None = None) -> None:
        self._plan, self._rank = plan, rank
        faulty = fault is not None and fault.rank == rank
        self._recorder = (
            (FaultyRecorder if faulty else Recorder)(
                rank, list(task.names), max_events=plan.max_events, value_limit_bytes=plan.value_limit_bytes,
                spans="compute" in plan.record, board=board,
            )
            if plan.record
            else None
        )  # fmt: skip
        if faulty:
            self._recorder.fault = fault
        self._cuda_clock = CudaClock() if plan.backend == "nccl" else None
        device = Device(
            plan.pace_of(rank),
            plan.time_scale,
            real_ns=self._cuda_clock.mark if self._cuda_clock else None,
            alive=board.tick if board is not None else lambda: None,
        )
        self.wire = Wire(
            plan.mesh,
            device,
            recorder=self._recorder if "sync" in plan.record else None,
            board=board,
            links=plan.link,
            time_scale=plan.time_scale,
            nccl=plan.backend == "nccl",
        )
        self.tracer = Tracer(device, self.wire, self._recorder)

    def join(self, store: dist.Store | None) -> None:
        """Make the process group; on a single rank there is none."""
        if self._plan.num_ranks == 1:
            return
        backend = self._plan.backend
        comm.use(self.wire)
        if self.wire.recorder is not None or self.wire.emulating:
            comm.register()
            backend = comm.BACKEND
        where = {"store": store, "rank": self._rank, "world_size": self._plan.num_ranks} if store is not None else {}
        dist.init_process_group(backend, timeout=_COLLECTIVE_TIMEOUT, **where)
        comm.keep(dist.group.WORLD)

    def take_part(self) -> Part | None:
        resolve = self._cuda_clock.resolve if self._cuda_clock else None
        return self._recorder.take(resolve) if self._recorder is not None else None

    def leave(self) -> None:
        self.tracer.close()
        if dist.is_initialized():
            dist.destroy_process_group()


# ---- under torchrun


def main() -> None:
    """Run a plan as one of torchrun's processes and leave the parts in a folder for `labkit merge`."""
    parser = argparse.ArgumentParser(description="Run one rank of a plan under torchrun.")
    parser.add_argument("--plan", required=True, type=Path, help="a plan's JSON file")
    parser.add_argument("--out", required=True, type=Path, help="folder for what each rank recorded")
    arguments = parser.parse_args()
    try:
        _run_rank(Plan.load(arguments.plan), arguments.out)
    except PlanError as error:
        raise SystemExit(f"labkit: {error}") from None


def _run_rank(plan: Plan, out: Path) -> None:
    rank, num_ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if num_ranks != plan.num_ranks:
        raise PlanError(
            f"torchrun started {num_ranks} processes, but the plan needs dp {plan.dp} x tp {plan.tp} x pp {plan.pp} = "
            f"{plan.num_ranks}: set --nproc-per-node (times --nnodes) to {plan.num_ranks}"
        )
    if plan.task == "own":
        raise PlanError("a plan file cannot carry your own layers: use a built-in task, or labkit.run in a notebook")
    if plan.pace or plan.link:
        raise PlanError("pace and link need the ranks' shared memory: run this plan with `labkit run`, not torchrun")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    kept = _Kept(plan.steps)
    outcome = carry_out(Job(0, plan), rank, None, None, kept)
    file = RankFile(
        rank, plan.to_dict(), list(outcome.layers), outcome.losses, kept.parts, outcome.step_seconds,
        outcome.first_step_seconds, os.environ.get("TORCHELASTIC_RUN_ID", ""), node=node_name(), clock=kept.clock,
    )  # fmt: skip
    file.save(out)


class _Kept:
    """Keeps what was recorded until the end, and how the hosts' clocks compare at both ends of the training."""

    def __init__(self, num_steps: int) -> None:
        self.parts: list[bytes] = []
        self.clock: list[ClockReading] = []
        self._num_steps, self._host_clock = num_steps, None

    def begins(self, layers: tuple[str, ...]) -> None: ...

    def fails(self, part: Part | None) -> None: ...

    def joined(self) -> None:
        if dist.is_initialized():
            store = dist.distributed_c10d._get_default_store()
            self._host_clock = HostClock(store, dist.get_rank(), dist.get_world_size())
            self.clock += self._host_clock.read()

    def step_done(self, steps: int, part: Part | None) -> None:
        if part is not None:
            self.parts.append(encode_part(part))
        if steps == self._num_steps and self._host_clock is not None:
            self.clock += self._host_clock.read()


if __name__ == "__main__":
    main()
