"""The schedules by name, which shapes each accepts, and `generate`: a name and a shape in, a Schedule out.

A schedule is one function, `order(rank, shape)`, that yields a rank's actions, under `@pipeline_schedule(...)`; see
published.py for ten of them. A plan asks `problem` before anything starts.

What PyTorch 2.13 refuses only when a step runs, and `problem` therefore cannot know from the shape:
  - fewer samples in the batch than microbatches ("Expecting 8 arg_mbs but got 4"), or samples that do not divide evenly
    (the first ranks run; the others die on a shape or with "Connection closed by peer");
  - fewer stages than ranks (PipelineStage), skip connections between stages that are not neighbours (multi-stage);
  - `step` under `torch.no_grad`.
Stages under torch.compile are refused by interleaved_zb, zbv and dualpipev when the schedule is made.
PyTorch takes 0 microbatches for GPipe and fails with an assertion elsewhere; here it is refused.
"""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Literal

from labkit.schedule.action import Action, Overlap, ScheduleError
from labkit.schedule.order import Schedule, flatten, pairs_in, place


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The size of a pipeline: ranks (p), microbatches (m), and stages per rank (v, "virtual")."""

    num_ranks: int
    num_microbatches: int
    virtual: int

    @property
    def num_stages(self) -> int:
        """Stages over all ranks."""
        return self.num_ranks * self.virtual


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A schedule that can be generated, and what it accepts.

    order            a rank's work: order(rank, shape) yields actions, and Overlap for a pair run as one unit
    placement        where the stages live, see `place`
    virtual          least and most stages per rank (None: no limit); `default_virtual` when not asked for
    accepts, rule    the shapes it accepts, as a test and in words
    splits_backward  uses the halves I and W, so the engine must be able to run them apart
    torch_name       for torch.distributed.pipelining.schedules.get_schedule_class; None where PyTorch has no such
                     class, then it runs from `to_text` through `_PipelineScheduleRuntime`
    summary, source  one line each, for people
    """

    name: str
    order: Callable[[int, Shape], Iterable[Action | Overlap]]
    placement: Literal["loop", "v"]
    virtual: tuple[int, int | None]
    default_virtual: int
    accepts: Callable[[Shape], bool]
    rule: str
    splits_backward: bool
    torch_name: str | None
    summary: str
    source: str


SCHEDULES: dict[str, Spec] = {}


def pipeline_schedule(
    name: str,
    *,
    summary: str,
    source: str,
    virtual: tuple[int, int | None] = (1, 1),
    default_virtual: int | None = None,
    placement: Literal["loop", "v"] = "loop",
    accepts: Callable[[Shape], bool] = lambda shape: True,
    rule: str = "any number of microbatches",
    splits_backward: bool = False,
    torch_name: str | None = None,
) -> Callable[[Callable], Callable]:
    """Register the function below as the order of schedule `name`; see Spec for the words. Returns it unchanged."""

    def register(order: Callable[[int, Shape], Iterable[Action | Overlap]]) -> Callable:
        SCHEDULES[name] = Spec(
            name=name,
            order=order,
            placement=placement,
            virtual=virtual,
            default_virtual=default_virtual or virtual[0],
            accepts=accepts,
            rule=rule,
            splits_backward=splits_backward,
            torch_name=torch_name,
            summary=summary,
            source=source,
        )
        return order

    return register


def generate(name: str, num_ranks: int, num_microbatches: int, virtual: int | None = None) -> Schedule:
    """The published schedule `name` on this shape; `virtual` stages per rank, the schedule's usual number if None.

    Raises ScheduleError with the text of `problem` for a shape the schedule does not accept.
    """
    trouble = problem(name, num_ranks, num_microbatches, virtual)
    if trouble:
        raise ScheduleError(trouble)
    spec = SCHEDULES[name]
    return _generated(spec, _shape(spec, num_ranks, num_microbatches, virtual))


@lru_cache(maxsize=8)
def _generated(spec: Spec, shape: Shape) -> Schedule:
    """A schedule is frozen, so whoever asks for the same one gets the same one."""
    rows = [list(spec.order(rank, shape)) for rank in range(shape.num_ranks)]
    paired = any(Overlap in set(map(type, row)) for row in rows)
    return Schedule(
        name=spec.name,
        num_microbatches=shape.num_microbatches,
        placement=place(shape.num_ranks, shape.virtual, spec.placement),
        orders=tuple(map(flatten if paired else tuple, rows)),
        overlapped=pairs_in(rows) if paired else frozenset(),
    )


def problem(name: str, num_ranks: int, num_microbatches: int, virtual: int | None = None) -> str | None:
    """Why this schedule does not fit this shape: the value, the rule and the way out; None if it fits.

    The rules are those of PyTorch 2.13 for the schedules PyTorch has.
    """
    if name not in SCHEDULES:
        return _unknown(name)
    spec = SCHEDULES[name]
    shape = _shape(spec, num_ranks, num_microbatches, virtual)
    for what, value in zip(("ranks", "microbatches", "stages per rank (virtual)"), astuple(shape), strict=True):
        if type(value) is not int or value < 1:
            return f"{name}: {value!r} {what}: give a whole number, 1 or more."
    return _virtual_problem(spec, shape) or _shape_problem(spec, shape)


def default_virtual(name: str) -> int:
    """The stages per rank that schedule `name` takes when not told."""
    return SCHEDULES[name].default_virtual


def default_microbatches(name: str, num_ranks: int, virtual: int | None = None) -> int:
    """A fair number of microbatches to show schedule `name` with: two per rank, or the legal number nearest to that."""
    spec = SCHEDULES[name]
    shape = _shape(spec, num_ranks, 2 * num_ranks, virtual)
    return shape.num_microbatches if spec.accepts(shape) else [*_nearest(spec, shape, "num_microbatches"), 1][0]


def _shape(spec: Spec, num_ranks: int, num_microbatches: int, virtual: int | None) -> Shape:
    stages = spec.default_virtual if virtual is None else virtual
    return Shape(num_ranks=num_ranks, num_microbatches=num_microbatches, virtual=stages)


def _unknown(name: object) -> str:
    """Suggest the known name nearest to `name`, PyTorch's own names included."""
    spellings = {spec.torch_name.casefold(): key for key, spec in SCHEDULES.items() if spec.torch_name}
    spellings |= {key.casefold(): key for key in SCHEDULES}
    close = difflib.get_close_matches(str(name).casefold(), spellings, n=1)
    hint = f" Did you mean {spellings[close[0]]!r}?" if close else ""
    return f"There is no schedule {name!r}.{hint} The schedules are {', '.join(sorted(SCHEDULES))}."


def _virtual_problem(spec: Spec, shape: Shape) -> str | None:
    least, most = spec.virtual
    if least <= shape.virtual and (most is None or shape.virtual <= most):
        return None
    several = [key for key, other in SCHEDULES.items() if other.virtual[1] is None]
    other = f", or a schedule for any number of stages per rank: {', '.join(several)}" if most == 1 else ""
    rule = f"{'exactly' if least == most else 'at least'} {least} stage{'s' * (least > 1)} per rank"
    return f"{spec.name} needs {rule}, not {shape.virtual}: choose virtual {least}{other}."


def _shape_problem(spec: Spec, shape: Shape) -> str | None:
    if spec.accepts(shape):
        return None
    counts, ranks = _nearest(spec, shape, "num_microbatches"), _nearest(spec, shape, "num_ranks")[:1]
    ways = [_counted(values, word) for values, word in ((counts, "microbatches"), (ranks, "ranks")) if values]
    asked = f"{_counted([shape.num_microbatches], 'microbatches')} on {_counted([shape.num_ranks], 'ranks')}"
    return f"{spec.name} needs {spec.rule}, not {asked}: choose {', or '.join(ways) or 'another schedule'}."


def _counted(values: list[int], plural: str) -> str:
    word = {"microbatches": "microbatch", "ranks": "rank"}[plural] if values == [1] else plural
    return f"{' or '.join(map(str, values))} {word}"


def _nearest(spec: Spec, shape: Shape, field: str) -> list[int]:
    """The nearest legal values of one field of `shape`, one below and one above, as far as there are any near."""

    def first(candidates: Iterable[int]) -> list[int]:
        return [value for value in candidates if spec.accepts(replace(shape, **{field: value}))][:1]

    value = getattr(shape, field)
    reach = min(4 * shape.num_stages, 1000)  # whoever asks for a million ranks gets no better advice, but soon
    below = first(range(value - 1, max(0, value - reach), -1)) or first(range(min(reach, value - 1), 0, -1))
    return below + first(range(value + 1, value + reach))
