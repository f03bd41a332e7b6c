"""What torch does with a plan, rank by rank, step by step, written into a `Writer`. In: a Plan and durations.

Where syncs stand follows the engine: a tensor parallel sum at the end of its layer; DDP's buckets inside the last
backward, waited for at its end; other replicas' sums after the last backward of a stage and its message (1F1B, GPipe:
after all); messages right after the stage's work, waited for as torch's schedule does (1F1B: with the next receive;
GPipe: after all forwards; the others: before the optimizer).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from labkit import schedule
from labkit.event import Kind
from labkit.mesh import Mesh
from labkit.plan import Plan
from labkit.replay.learned import BACKWARD, FORWARD, INPUT, WEIGHT, StepCosts, sync_cost
from labkit.replay.program import Program
from labkit.replay.shapes import LayerShape, item_bytes, stage_positions, stage_shapes
from labkit.replay.writer import Issued, Writer
from labkit.schedule import Action, Schedule

_PARTS = {schedule.Kind.FORWARD: FORWARD, schedule.Kind.BACKWARD: BACKWARD, schedule.Kind.BACKWARD_INPUT: INPUT,
          schedule.Kind.BACKWARD_WEIGHT: WEIGHT}  # fmt: skip


class Move(NamedTuple):
    """One instruction of a pipeline rank: do an action, or send, receive or wait for what it makes or needs."""

    verb: str  # do, send, recv, wait_send, wait_recv; sum: the replicas' gradients of the action's stage
    action: Action


def pipeline_moves(order: Schedule, rank: int) -> Iterator[Move]:
    """What torch's runtime for this schedule does on `rank`, messages included."""
    cells = [cell if isinstance(cell, tuple) and isinstance(cell[0], Action) else (cell,) for cell in order.cells(rank)]
    pending: list[Action] = []
    last_of = _last_backwards(order, rank)
    single = order.name in ("1f1b", "gpipe", "naive")
    for place, cell in enumerate(cells):
        for action in cell:
            needs = sender_of(order, action) is not None
            if needs:
                yield Move("recv", action)
            if pending and _waits_before(order, rank, place - 1):
                yield from _drain(pending)
            if needs:
                yield Move("wait_recv", action)
            yield Move("do", action)
        if order.name == "1f1b":
            yield from _drain(pending)
        for action in cell:
            if receiver_of(order, action) is not None:
                yield Move("send", action)
                pending.append(action)
        if order.name == "gpipe" and place + 1 == len(cells) // 2:
            yield from _drain(pending)
        if not single:
            yield from (Move("sum", action) for action in cell if action in last_of)
    yield from _drain(pending)
    if single:
        yield from (Move("sum", action) for action in last_of)


def _last_backwards(order: Schedule, rank: int) -> list[Action]:
    """Of each stage on the rank, the action after which its gradients are whole."""
    ends = (schedule.Kind.BACKWARD, schedule.Kind.BACKWARD_WEIGHT)
    return list({action.stage: action for action in order.orders[rank] if action.kind in ends}.values())


def _drain(pending: list[Action]) -> Iterator[Move]:
    yield from (Move("wait_send", action) for action in pending)
    pending.clear()


def _waits_before(order: Schedule, rank: int, place: int) -> bool:
    """torch's 1F1B, steady phase: the send after action `place` is waited for with the next receive."""
    warmup, m = order.num_ranks - rank, order.num_microbatches
    return order.name == "1f1b" and warmup - 1 <= place <= 2 * m - warmup - 1


def sender_of(order: Schedule, action: Action) -> Action | None:
    """The action on another rank whose message this one needs; a backward stands for itself or its input half."""
    return _neighbour(order, action, -1)


def receiver_of(order: Schedule, action: Action) -> Action | None:
    """The action on another rank that needs this one's message."""
    return _neighbour(order, action, 1)


def _neighbour(order: Schedule, action: Action, ahead: int) -> Action | None:
    """The same action one stage on (1) or back (-1), in its own direction, if that is on another rank."""
    stage, kind, microbatch = action
    if kind is schedule.Kind.BACKWARD_WEIGHT:
        return None
    other = stage + (ahead if kind is schedule.Kind.FORWARD else -ahead)
    placement = order.placement
    if not 0 <= other < len(placement) or placement[other] == placement[stage]:
        return None
    return Action(other, kind, microbatch)


def plan_program(plan: Plan, costs: StepCosts, layers: tuple[str, ...]) -> Program:
    """All steps of all ranks of a plan."""
    writer = Writer(lambda axis, op, size, ranks: sync_cost(plan, costs, axis, op, size, ranks))
    order = plan.pipeline
    for rank in range(plan.num_ranks):
        writer.begin_rank(rank)
        _Rank(plan, costs, layers, order, writer, rank).run()
    return writer.program()


class _Rank:
    """One rank's training, written down."""

    def __init__(
        self, plan: Plan, costs: StepCosts, layers: tuple[str, ...], order: Schedule | None, writer: Writer, rank: int
    ) -> None:
        self.plan, self.costs, self.order, self.writer, self.rank = plan, costs, order, writer, rank
        self.mesh: Mesh = plan.mesh
        self.place = self.mesh.coordinate(rank)
        self.names = [[layers[i] for i in positions] for positions in stage_positions(plan, len(layers))]
        self.shapes = stage_shapes(plan)
        self.samples = plan.replica_batch // plan.microbatches
        self.item_bytes = item_bytes(plan)
        self.buckets: list[Issued] = []
        self.bucket_bytes = 0
        self.messages: dict[tuple[str, Action], Issued] = {}

    def run(self) -> None:
        writer, costs = self.writer, self.costs
        for step in range(self.plan.steps):
            writer.step = step
            if step:
                writer.work(round(costs.between_steps_ns))
            whole = writer.open(Kind.STEP)
            self._load()
            writer.span(Kind.ZERO_GRAD, round(costs.zero_grad_ns))
            self._replica() if self.order is None else self._pipeline(self.order)
            writer.work(round(costs.before_optimizer_ns))
            writer.span(Kind.OPTIMIZER, round(costs.optimizer_ns))
            writer.close(whole)

    def _load(self) -> None:
        rows = [self.writer.open(Kind.LOAD, microbatch=m) for m in range(self.plan.microbatches)]
        self.writer.work(round(self.costs.load_ns))
        for row in rows:
            self.writer.close(row)

    def _replica(self) -> None:
        for microbatch in range(self.plan.microbatches):
            last = microbatch == self.plan.microbatches - 1
            self._stage(FORWARD, 0, microbatch)
            self._loss(0, microbatch)
            self._stage(BACKWARD, 0, microbatch, sums=last)
            if last:
                self._wait_for_sums(0, microbatch)

    def _loss(self, stage: int, microbatch: int) -> None:
        self.writer.span(Kind.LOSS, round(self.costs.loss_ns), stage=stage, microbatch=microbatch)

    # -- one stage's work on one microbatch

    def _stage(self, part: str, stage: int, microbatch: int, *, sums: bool = False) -> None:
        names = self.names[stage]
        row = self.writer.open(f"stage_{part}", stage=stage, microbatch=microbatch)
        positions = range(len(names)) if part == FORWARD else range(len(names) - 1, -1, -1)
        if part == FORWARD and self._has_buckets and self.writer.step == 1 and microbatch == 0:
            self._agree_on_buckets()
        for i in positions:
            self._layer(part, stage, microbatch, i)
            if sums and self._has_buckets:
                self._fill_bucket(stage, microbatch, i)
        self.writer.close(row)

    def _layer(self, part: str, stage: int, microbatch: int, i: int) -> None:
        writer, name = self.writer, self.names[stage][i]
        row = writer.open(part, stage=stage, microbatch=microbatch, layer=name)
        writer.work(self._layer_ns(part, stage, name))
        for op, elements in self._tensor_syncs(part, stage, i):
            size = elements * self.samples * self.item_bytes
            group = self.mesh.group("tp", self.rank)
            writer.wait(writer.collective(op, "tp", group, size, stage=stage, microbatch=microbatch, layer=name))
        writer.close(row)

    def _layer_ns(self, part: str, stage: int, name: str) -> int:
        costs, num = self.costs, len(self.names[stage])

        def of(what: str) -> float:
            return costs.stage_ns[what] / num if what in costs.stage_ns else costs.part_ns(name, what)

        again = of(FORWARD) if self.plan.recompute and part in (BACKWARD, INPUT) else 0.0
        return round(of(part) + again)

    def _tensor_syncs(self, part: str, stage: int, i: int) -> tuple[tuple[str, int], ...]:
        if self.plan.tp == 1 or self.shapes is None or part == WEIGHT:
            return ()
        shape: LayerShape = self.shapes[stage][i]
        if part == FORWARD:
            return shape.forward_syncs
        return (*shape.forward_syncs, *shape.backward_syncs) if self.plan.recompute else shape.backward_syncs

    # -- between replicas

    @property
    def _has_buckets(self) -> bool:
        plan = self.plan
        return plan.dp > 1 and plan.tp * plan.pp == 1 and plan.grad_sync == "engine"

    def _fill_bucket(self, stage: int, microbatch: int, i: int) -> None:
        """The gradients of a layer are there: sum the bucket if it is full. In the first step DDP has one for all."""
        self.bucket_bytes += self._params(stage, i) * self.item_bytes
        full = self.writer.step > 0 and self.bucket_bytes >= self.plan.bucket_mb * 2**20
        if full or i == 0:
            self.buckets.append(self._sum(self.bucket_bytes, stage, microbatch, self.names[stage][i]))
            self.bucket_bytes = 0

    def _agree_on_buckets(self) -> None:
        """At the start of the second step DDP tells all replicas in which order it will fill its buckets."""
        group = self.mesh.group("dp", self.rank)
        for size_bytes in (4 * (2 * len(self.names[0]) + 1), 4):
            self.writer.wait(self.writer.collective("broadcast", "dp", group, size_bytes, stage=0, microbatch=0))

    def _params(self, stage: int, i: int) -> int:
        return self.shapes[stage][i].local_params(self.plan.tp) if self.shapes else 0

    def _sum(self, size_bytes: int, stage: int, microbatch: int, layer: str | None = None) -> Issued:
        group = self.mesh.group("dp", self.rank)
        return self.writer.collective(
            "all_reduce", "dp", group, size_bytes, stage=stage, microbatch=microbatch, layer=layer
        )

    def _wait_for_sums(self, stage: int, microbatch: int) -> None:
        """The last backward of a stage is over: wait for its buckets, or sum all its gradients at once."""
        if self.plan.dp > 1 and not self._has_buckets and self.plan.grad_sync == "engine":
            size = sum(self._params(stage, i) for i in range(len(self.names[stage]))) * self.item_bytes
            self.buckets.append(self._sum(size, stage, microbatch))
        for bucket in self.buckets:
            self.writer.wait(bucket)
        self.buckets.clear()

    # -- a pipeline

    def _pipeline(self, order: Schedule) -> None:
        own = self.place["pp"]
        for verb, action in pipeline_moves(order, own):
            if verb == "do":
                self._stage(_PARTS[action.kind], action.stage, action.microbatch)
                if action.kind == schedule.Kind.FORWARD and action.stage == order.num_stages - 1:
                    self._loss(action.stage, action.microbatch)
            elif verb == "sum":
                self._wait_for_sums(action.stage, action.microbatch)
            elif verb in ("send", "recv"):
                self.messages[verb, action] = self._message(order, verb, action)
            else:
                self.writer.wait(self.messages.pop((verb.removeprefix("wait_"), action)))

    def _message(self, order: Schedule, verb: str, action: Action) -> Issued:
        other = receiver_of(order, action) if verb == "send" else sender_of(order, action)
        peer = self.mesh.rank(**{**self.place, "pp": order.placement[other.stage]})
        forward = action.kind == schedule.Kind.FORWARD
        target = other if verb == "send" else action
        boundary = min(action.stage, other.stage)
        size = self._boundary_bytes(boundary)
        key = (forward, target.stage, target.microbatch)
        issue = self.writer.send if verb == "send" else self.writer.recv
        group = self.mesh.group("pp", self.rank)
        return issue(peer, key, size, group, stage=action.stage, microbatch=action.microbatch)

    def _boundary_bytes(self, stage: int) -> int:
        """What a stage hands on for one microbatch."""
        if self.shapes is None:
            return 0
        return self.shapes[stage][-1].output_elements * self.samples * self.item_bytes
