"""How a GPT is trained: degrees of parallelism, batch, schedule, recomputation. Checked when made.

In: a Model and numbers. Out: a frozen `Training` that costs and predict read. It is the counterpart of `Plan` for
models that are too big to run here; the words are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from labkit import schedule
from labkit.costs.model import Model
from labkit.mesh import Mesh

RECOMPUTE = ("none", "selective", "full")
ADAM_STATE_BYTES = 12
"""Per parameter, mixed precision Adam: a float32 copy and two moments. Rajbhandari et al. 2019, section 3.1."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One way to train `model`. Mixed precision: 2 bytes a parameter and activation, float32 Adam."""

    model: Model
    dp: int = 1
    tp: int = 1
    pp: int = 1
    global_batch: int = 1
    """Samples of a step over all replicas."""
    microbatch: int = 1
    """Samples of one microbatch."""
    schedule: str | None = None
    """Order of pipeline work; by default 1f1b, or interleaved_1f1b where virtual is above 1."""
    virtual: int = 1
    """Stages per pipeline rank."""
    recompute: str = "none"
    """none; selective: only the attention core; full: every layer from its input."""
    sequence_parallel: bool = False
    zero: int = 0
    offload: bool = False
    """Optimizer state and the update live in CPU memory."""
    overlap_dp: bool = True
    """Gradients are averaged during the last backward (torch DDP) rather than after it (Megatron's local DDP)."""
    scatter_gather: bool = True
    """A message between nodes is cut over the tp ranks (Narayanan et al. 2021, section 4.1)."""
    gradient_bytes: int = 2
    """Bytes of a gradient element that is kept and synced: 2, or 4 with float32 accumulation."""
    fused_accumulation: bool = False
    """The weight gradient's product adds to the sum of earlier microbatches itself; else a pass of its own does."""
    dtype: str = "bfloat16"
    """Of the matrix products, whose rate it sets. Memory and messages are mixed precision's whatever it is."""

    def __post_init__(self) -> None:
        if self.schedule is None:
            object.__setattr__(self, "schedule", "interleaved_1f1b" if self.virtual > 1 else "1f1b")
        for check in (_check_numbers, _check_cut, _check_batch, _check_zero):
            check(self)

    @property
    def mesh(self) -> Mesh:
        return Mesh(pp=self.pp, dp=self.dp, tp=self.tp)

    @property
    def num_ranks(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def num_microbatches(self) -> int:
        """Microbatches of a step in one replica (m)."""
        return self.global_batch // (self.dp * self.microbatch)

    @property
    def num_stages(self) -> int:
        return self.pp * self.virtual

    @cached_property
    def layers_per_rank(self) -> tuple[int, ...]:
        """Layers of each pipeline rank; where they do not divide, the middle ranks hold one more."""
        few, more = divmod(self.model.layers, self.pp)
        first = (self.pp - more + 1) // 2
        return tuple(few + (first <= rank < first + more) for rank in range(self.pp))

    def __str__(self) -> str:
        num, size = self.num_microbatches, self.microbatch
        pieces = f"{num} microbatch{'es' if num > 1 else ''} of {size} sample{'s' if size > 1 else ''}"
        options = [f"dp {self.dp}, tp {self.tp}, pp {self.pp}, {self.schedule}, {pieces}"]
        options += [f"zero {self.zero}"] if self.zero else []
        options += [f"recompute {self.recompute}"] if self.recompute != "none" else []
        return f"{self.model}: {', '.join(options)}"


def _check_numbers(training: Training) -> None:
    for name in ("dp", "tp", "pp", "global_batch", "microbatch", "virtual"):
        value = getattr(training, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more")
    if training.recompute not in RECOMPUTE:
        raise ValueError(f"recompute={training.recompute!r}: known are {', '.join(RECOMPUTE)}")
    if training.gradient_bytes not in (2, 4):
        raise ValueError(f"gradient_bytes={training.gradient_bytes!r}: give 2 or 4")


def _check_cut(training: Training) -> None:
    model = training.model
    if model.heads % training.tp:
        fits = [n for n in range(1, model.heads + 1) if model.heads % n == 0]
        raise ValueError(f"{model.heads} heads do not divide over tp {training.tp}: choose tp from {fits}")
    if training.num_stages > model.layers:
        raise ValueError(
            f"pp {training.pp} x virtual {training.virtual} = {training.num_stages} stages, but the model has "
            f"{model.layers} layers: every stage needs one, so lower pp or virtual"
        )
    if training.sequence_parallel and training.tp == 1:
        raise ValueError("sequence_parallel splits activations over the tp ranks, but tp is 1: set tp 2 or more")


def _check_batch(training: Training) -> None:
    piece = training.dp * training.microbatch
    if training.global_batch % piece:
        raise ValueError(
            f"global_batch {training.global_batch} does not divide into dp {training.dp} x microbatch "
            f"{training.microbatch} = {piece} samples: choose {-(-training.global_batch // piece) * piece}"
        )
    if training.pp == 1 and training.virtual == 1:
        return
    wrong = schedule.problem(training.schedule, training.pp, training.num_microbatches, training.virtual)
    if wrong and training.num_microbatches >= training.pp:  # fewer run too: Megatron's 1F1B takes them
        raise ValueError(wrong)


def _check_zero(training: Training) -> None:
    if training.zero not in (0, 1, 2, 3):
        raise ValueError(f"zero {training.zero!r}: the stages are 0, 1, 2 and 3")
