"""What torch does with a plan, rank by rank, step by step, written into a `Writer`. In: a Plan and durations.

Where syncs stand follows the engine: a tensor parallel sum at the end of its layer; DDP's buckets inside the last
backward, waited for at its end; other replicas' sums after the last backward of a stage and its message (1F1B, GPipe:
after all); messages right after the stage's work, waited for as torch's schedule does (1F1B: with the next receive;
GPipe: after all forwards; the others: before the optimizer).
"""

from __future__ import annotations

from labkit import schedule
from labkit.event import Kind
from labkit.mesh import Mesh
from labkit.plan import Plan
from labkit.replay.learned import BACKWARD, FORWARD, INPUT, WEIGHT, StepCosts, sync_cost
from labkit.replay.moves import pipeline_moves
from labkit.replay.program import Program
from labkit.replay.shapes import LayerShape, item_bytes, stage_positions, stage_shapes
from labkit.replay.writer import Issued, Writer
from labkit.schedule import Action, Schedule

_PARTS = {schedule.Kind.FORWARD: FORWARD, schedule.Kind.BACKWARD: BACKWARD, schedule.Kind.BACKWARD_INPUT: INPUT,
          schedule.Kind.BACKWARD_WEIGHT: WEIGHT}  # fmt: skip


def plan_program(plan: Plan, costs: StepCosts, layers: tuple[str, ...]) -> Program:
    """All steps of all ranks of a plan."""
    writer = Writer(lambda axis, op, size, ranks: sync_cost(plan, costs, axis, op, size, ranks))
    order = plan.pipeline
    for rank in range(plan.num_ranks):
        writer.begin_rank(rank)
        _Rank(plan, costs, layers, order, writer, rank).run()
    return writer.program()


def shared_out(shapes: list[LayerShape], num_ranks: int) -> list[list[int]]:
    """Elements of the tensors that each rank updates.

    torch's ZeroRedundancyOptimizer gives the largest that is left to the rank with least so far.
    """
    shares: list[list[int]] = [[] for _ in range(num_ranks)]
    for size in sorted((size for shape in shapes for size in shape.tensors), reverse=True):
        min(shares, key=sum).append(size)
    return shares


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
            self._update()
            writer.close(whole)

    def _update(self) -> None:
        """The optimizer. With ZeRO 1 each replica updates its share, then hands it to the others, tensor by tensor."""
        writer = self.writer
        row = writer.open(Kind.OPTIMIZER)
        writer.work(round(self.costs.optimizer_ns))
        if self.plan.zero == 1:
            group = self.mesh.group("dp", self.rank)
            shares = shared_out(self.shapes[0], self.plan.dp)
            handed = [
                writer.collective("broadcast", "dp", group, size * self.item_bytes)
                for share in shares
                for size in share
            ]
            for broadcast in handed:
                writer.wait(broadcast)
        writer.close(row)

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

    def _num_buckets(self) -> int:
        """Of the second step and later, as `_fill_bucket` fills them."""
        count, held = 0, 0
        for i in reversed(range(len(self.names[0]))):
            held += self._params(0, i) * self.item_bytes
            if held >= self.plan.bucket_mb * 2**20 or i == 0:
                count, held = count + 1, 0
        return count

    def _agree_on_buckets(self) -> None:
        """At the start of the second step DDP tells all replicas in which order it will fill its buckets."""
        group = self.mesh.group("dp", self.rank)
        tensors = sum(len(shape.tensors) for shape in self.shapes[0]) if self.shapes else 2 * len(self.names[0])
        for size_bytes in (4 * (tensors + 1), 4 * self._num_buckets()):
            self.writer.wait(self.writer.collective("broadcast", "dp", group, size_bytes, stage=0, microbatch=0))

    def _params(self, stage: int, i: int) -> int:
        return self.shapes[stage][i].local_params(self.plan.tp) if self.shapes else 0

    def _sum(self, size_bytes: int, stage: int, microbatch: int, layer: str | None = None) -> Issued:
        group = self.mesh.group("dp", self.rank)
        return self.writer.collective(
            "all_reduce", "dp", group, size_bytes, stage=stage, microbatch=microbatch, layer=layer
        )

    def _wait_for_sums(self, stage: int, microbatch: int) -> None:
        """The last backward of a stage is over: wait for its buckets, or sum all its gradients at once.

        Before that tp ranks sum what each has of a gradient alone.
        """
        summed = [size for shape in self.shapes[stage] for size in shape.summed] if self.shapes else []
        for size in summed:
            group = self.mesh.group("tp", self.rank)
            self.writer.wait(self.writer.collective("all_reduce", "tp", group, size * self.item_bytes, stage=stage))
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
        other = order.receiver_of(action) if verb == "send" else order.sender_of(action)
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
        slices = self.plan.tp if self.plan.sequence_parallel else 1
        return self.shapes[stage][-1].output_elements * self.samples * self.item_bytes // slices
