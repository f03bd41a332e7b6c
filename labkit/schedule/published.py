"""The published schedules: for each, the order of one rank's work. One function is one schedule.

`shape` gives the ranks p, the microbatches m and the stages per rank v. Read a function as "what rank r does, from
first to last"; when it does so is left to the dependencies. Where PyTorch runs a schedule, its order is the same as
PyTorch's (tested), including where PyTorch departs from the paper.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count, repeat

from labkit.schedule.action import Action, Kind, Overlap
from labkit.schedule.registry import Shape, pipeline_schedule

F, B, I, W = Kind  # the letters of the papers


def alternate(forwards: Sequence[Action], backwards: Sequence[Action], warmup: int) -> Iterator[Action]:
    """`warmup` forwards, then one forward, one backward in turn, then the backwards that are left."""
    rest = forwards[warmup:]
    return chain(forwards[:warmup], chain.from_iterable(zip(rest, backwards)), backwards[len(rest) :])


def with_weights(order: Iterable[Action], delay: int) -> Iterator[Action]:
    """`order` with a weight half after each input half, that of the input half `delay` before; the rest at the end."""
    waiting: deque[Action] = deque()
    for action in order:
        yield action
        if action.kind is I:
            waiting.append(action)
            if len(waiting) > delay:
                yield _weight_half(waiting.popleft())
    yield from map(_weight_half, waiting)


def _weight_half(half: Action) -> Action:
    return Action(half.stage, W, half.microbatch)


def on_stage(stage: int, kind: Kind, microbatches: Iterable[int]) -> list[Action]:
    """The same kind of action for several microbatches."""
    make = partial(tuple.__new__, Action)  # half the time of Action(...), and most of what a schedule takes to make
    return list(map(make, zip(repeat(stage), repeat(kind), microbatches)))


# --- one stage per rank ----------------------------------------------------------------------------------------------


@pipeline_schedule(
    "gpipe",
    summary="All forwards, then all backwards: simple, and every microbatch's activations are held at once.",
    source="Huang et al. 2019, arXiv 1811.06965",
    torch_name="GPipe",
)
def gpipe(rank: int, shape: Shape) -> Iterator[Action]:
    """Fill, then drain, in the same order of microbatches."""
    yield from on_stage(rank, F, range(shape.num_microbatches))
    yield from on_stage(rank, B, range(shape.num_microbatches))


@pipeline_schedule(
    "naive",
    summary="The whole batch as one microbatch: one rank works, all others wait.",
    source="GPipe with one microbatch; Huang et al. 2019, arXiv 1811.06965, figure 2b",
    accepts=lambda shape: shape.num_microbatches == 1,
    rule="the whole batch as one microbatch",
    torch_name="GPipe",
)
def naive(rank: int, shape: Shape) -> Iterator[Action]:
    """A model only cut into pieces, not yet a pipeline."""
    yield from gpipe(rank, shape)


@pipeline_schedule(
    "1f1b",
    summary="One forward, one backward in turn: GPipe's idle time, but at most p microbatches' activations held.",
    source="Narayanan et al. 2021, arXiv 2104.04473, section 2.2.1 (PipeDream-Flush)",
    accepts=lambda shape: shape.num_microbatches >= shape.num_ranks,
    rule="at least as many microbatches as ranks",
    torch_name="1F1B",
)
def one_f_one_b(rank: int, shape: Shape) -> Iterator[Action]:
    """Rank r runs ahead by one forward for each rank below it, and holds p - r microbatches from then on."""
    m = range(shape.num_microbatches)
    yield from alternate(on_stage(rank, F, m), on_stage(rank, B, m), warmup=shape.num_ranks - 1 - rank)


def _zero_bubble(rank: int, shape: Shape, ahead: int) -> Iterator[Action]:
    """`ahead` = 1 or 2: forwards of warm-up per rank below, and weight halves put off per rank above."""
    m = range(shape.num_microbatches)
    order = alternate(on_stage(rank, F, m), on_stage(rank, I, m), warmup=ahead * (shape.num_ranks - 1 - rank))
    yield from with_weights(order, delay=ahead * rank)


@pipeline_schedule(
    "zb_h1",
    summary="1F1B with the backward in halves; the weight halves fill idle time. Memory of 1F1B, a third of its idle.",
    source="Qi et al. 2024, arXiv 2401.10241, section 2.1",
    splits_backward=True,
)
def zb_h1(rank: int, shape: Shape) -> Iterator[Action]:
    """1F1B's warm-up; on rank r the weight half of microbatch i comes after the input half of i + r."""
    yield from _zero_bubble(rank, shape, ahead=1)


@pipeline_schedule(
    "zb_h2",
    summary="As zb_h1 with twice the warm-up: no idle time if all parts take equally long, for twice the memory.",
    source="Qi et al. 2024, arXiv 2401.10241, section 2.2",
    splits_backward=True,
)
def zb_h2(rank: int, shape: Shape) -> Iterator[Action]:
    """Warm-up 2(p - r) - 2; the weight half of microbatch i comes after the input half of i + 2r."""
    yield from _zero_bubble(rank, shape, ahead=2)


# --- several stages per rank, in a loop ------------------------------------------------------------------------------


def _whole_rounds(shape: Shape) -> bool:
    return shape.num_microbatches % _num_rounds(shape) == 0


def _num_rounds(shape: Shape) -> int:
    """Microbatches go through a rank's stages in rounds of p or a little more."""
    return max(1, shape.num_microbatches // shape.num_ranks)


_ROUNDS = "a number of microbatches that is a multiple of the number of rounds, max(1, microbatches // ranks)"


def _by_rounds(stages: Sequence[int], kind: Kind, shape: Shape) -> list[Action]:
    """Round by round: the round's microbatches through the first of `stages`, then through the next ..."""
    per_round = shape.num_microbatches // _num_rounds(shape)
    starts = range(0, shape.num_microbatches, per_round)
    return [action for start in starts for s in stages for action in on_stage(s, kind, range(start, start + per_round))]


def _interleaved(rank: int, shape: Shape, backward: Kind, ahead: int) -> Iterator[Action]:
    """1F1B over the rank's stages in turn; `ahead` forwards of warm-up for each rank below."""
    stages = range(rank, shape.num_stages, shape.num_ranks)
    per_round = shape.num_microbatches // _num_rounds(shape)
    warmup = (shape.virtual - 1) * per_round + ahead * (shape.num_ranks - 1 - rank)
    return alternate(_by_rounds(stages, F, shape), _by_rounds(stages[::-1], backward, shape), warmup)


@pipeline_schedule(
    "interleaved_1f1b",
    summary="1F1B with several smaller stages per rank: idle time divided by their number, more messages.",
    source="Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2",
    virtual=(1, None),
    default_virtual=2,
    accepts=_whole_rounds,
    rule=_ROUNDS,
    torch_name="Interleaved1F1B",
)
def interleaved_1f1b(rank: int, shape: Shape) -> Iterator[Action]:
    """Depth first: a round of microbatches goes through all stages before the next round starts.

    The paper wants m to be a multiple of p; as PyTorch, we take rounds of more than p as well.
    """
    yield from _interleaved(rank, shape, B, ahead=2)


@pipeline_schedule(
    "looped_bfs",
    summary="GPipe with several stages per rank: each stage runs all microbatches, then the next one does.",
    source="Lamy-Poirier 2023, arXiv 2211.05953",
    virtual=(1, None),
    default_virtual=2,
    torch_name="LoopedBFS",
)
def looped_bfs(rank: int, shape: Shape) -> Iterator[Action]:
    """Breadth first. PyTorch runs the backwards from the last microbatch to the first."""
    m = range(shape.num_microbatches)
    stages = range(rank, shape.num_stages, shape.num_ranks)
    yield from chain.from_iterable(on_stage(stage, F, m) for stage in stages)
    yield from chain.from_iterable(on_stage(stage, B, m[::-1]) for stage in stages[::-1])


@pipeline_schedule(
    "interleaved_zb",
    summary="Interleaved 1F1B with the backward in halves; the weight halves fill idle time.",
    source="Qi et al. 2024, arXiv 2401.10241 (ZB-1P), on interleaved stages",
    virtual=(1, None),
    default_virtual=2,
    accepts=_whole_rounds,
    rule=_ROUNDS,
    splits_backward=True,
    torch_name="InterleavedZeroBubble",
)
def interleaved_zb(rank: int, shape: Shape) -> Iterator[Action]:
    """One forward of warm-up per rank below is enough: the input half alone sends the gradient on."""
    yield from with_weights(_interleaved(rank, shape, I, ahead=1), delay=rank)


# --- two stages per rank, in a V -------------------------------------------------------------------------------------


class _Counting:
    """Numbers the microbatches: the n-th action of a kind on a stage is for microbatch n. B counts as I."""

    def __init__(self) -> None:
        self._numbers: defaultdict[tuple[int, Kind], Iterator[int]] = defaultdict(count)

    def __call__(self, stage: int, kind: Kind) -> Action:
        return Action(stage, kind, next(self._numbers[stage, I if kind is B else kind]))

    def each(self, stage: int, kinds: Iterable[Kind]) -> list[Action]:
        return [self(stage, kind) for kind in kinds]


def _legs(rank: int, shape: Shape) -> tuple[int, int]:
    """The rank's two stages: on the way down the V and on the way back up."""
    return rank, 2 * shape.num_ranks - 1 - rank


@pipeline_schedule(
    "zbv",
    summary="A V of two stages per rank with the backward in halves: no idle time if all parts take equally long.",
    source="Qi et al. 2024, arXiv 2401.10241, section 6 (ZB-V)",
    virtual=(2, 2),
    placement="v",
    splits_backward=True,
    torch_name="ZBVZeroBubble",
)
def zbv(rank: int, shape: Shape) -> Iterator[Action]:
    """PyTorch's fixed order, made for at least 2p - 1 microbatches; with fewer, the surplus is left out."""
    whole = shape.num_microbatches
    order = _zbv(rank, shape, max(whole, 2 * shape.num_ranks - 1))
    yield from (action for action in order if action.microbatch < whole)


def _zbv(rank: int, shape: Shape, m: int) -> Iterator[Action]:
    p, (down, up), act = shape.num_ranks, _legs(rank, shape), _Counting()
    # Warm up: fill the way down until the first microbatch comes back, then both ways, then up with its backward.
    yield from act.each(down, [F] * (2 * (p - rank) - 1))
    for _ in range(rank):
        yield from (act(up, F), act(down, F))
    for _ in range(p - rank):
        yield from act.each(up, (F, I, W))
    # Steady: forward and backward on either leg, until the way down has seen all m microbatches and then some.
    for turn in range(m - p):
        yield from act.each(down, (F, I, W) if turn <= m - 2 * p + rank else (I, W))
        yield from act.each(up, (F, I, W))
    # Cool down: input halves first, others wait for them; then the weight halves that are left.
    for _ in range(rank):
        yield from (act(down, I), act(up, I))
    for _ in range(p - rank):
        yield from act.each(down, (I, W))
    yield from act.each(up, [W] * rank)
    yield from act.each(down, [W] * rank)


@pipeline_schedule(
    "dualpipev",
    summary="A V of two stages per rank where a forward and a backward overlap, to hide messages behind computation.",
    source="DeepSeek-V3, arXiv 2412.19437, section 3.2.1, cut in half to a V (github.com/deepseek-ai/DualPipe)",
    virtual=(2, 2),
    placement="v",
    accepts=lambda shape: shape.num_microbatches >= 2 * shape.num_ranks,
    rule="at least twice as many microbatches as ranks (one for each stage)",
    splits_backward=True,
    torch_name="DualPipeV",
)
def dualpipev(rank: int, shape: Shape) -> Iterator[Action | Overlap]:
    """Warm-up, overlapped pairs, and a cool-down in which the second half of the backwards is in halves."""
    act, below = _Counting(), shape.num_ranks - 1 - rank
    yield from _dualpipev_warmup(rank, shape, act)
    yield from _dualpipev_pairs(rank, shape, act)
    # Cool down. Left are 2 (r + 1) + below backwards: r + 1 whole ones, the others in halves.
    down, up = _legs(rank, shape)
    stages = [up, down] * (rank + 1)
    yield from (act(stage, B) for stage in stages[: rank + 1])
    halves = [act(stage, I) for stage in [*stages[rank + 1 :], *[down] * below]]
    first, later = halves[: rank + 1], halves[rank + 1 :]
    weights = list(map(_weight_half, halves))
    yield from first
    yield from (action for pair in zip(weights, later, strict=False) for action in pair)
    yield from weights[len(later) :]


def _dualpipev_warmup(rank: int, shape: Shape, act: _Counting) -> Iterator[Action]:
    """Fill the way down, then both ways; the first backwards in halves, so the ranks below get theirs early."""
    (down, up), below = _legs(rank, shape), shape.num_ranks - 1 - rank
    yield from act.each(down, [F] * (2 * below))
    for _ in range(rank + 1):
        yield from (act(down, F), act(up, F))
    for _ in range(below):
        yield from act.each(up, (I, W, F))


def _dualpipev_pairs(rank: int, shape: Shape, act: _Counting) -> Iterator[Action | Overlap]:
    """A forward on one leg with a backward on the other, in turn."""
    (down, up), below = _legs(rank, shape), shape.num_ranks - 1 - rank
    for turn in range(shape.num_microbatches - 2 * shape.num_ranks + rank + 1):
        first = Overlap(act(down, F), act(up, B))
        # At the tip of the V the very first pair runs apart: its forward's result is wanted at once.
        yield from first if turn == 0 and below == 0 else (first,)
        yield Overlap(act(up, F), act(down, B))
    for _ in range(below):
        yield act(up, B)
        yield Overlap(act(up, F), act(down, B))
