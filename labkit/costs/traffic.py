"""Bytes that one rank syncs in a step, by axis.

In: a Training. Out: per axis, the number of syncs, the tensor each carries, and bytes that leave the rank.
Elements are 2 bytes; gradients `gradient_bytes`. Letters as in memory.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.costs.memory import parameters_of_rank
from labkit.costs.training import Training
from labkit.link import wire_bytes


@dataclass(frozen=True)
class Traffic:
    """One kind of sync of one rank in a step: `count` times `op` on a tensor of `size_bytes`."""

    axis: str
    op: str
    count: float
    size_bytes: float
    num_ranks: int

    @property
    def wire_bytes(self) -> float:
        """Bytes the rank puts on its links in the step."""
        return self.count * wire_bytes(self.op, self.size_bytes, self.num_ranks)


def traffic(training: Training, stage: int = 0) -> list[Traffic]:
    """Every sync of a rank of pipeline rank `stage` in a step."""
    return [*tensor_traffic(training, stage), *pipeline_traffic(training, stage), *data_traffic(training, stage)]


def tensor_traffic(training: Training, stage: int = 0) -> list[Traffic]:
    """Tensor parallel syncs of the layers.

    2 all-reduces of b s h forward and 2 backward per layer and microbatch: 8 b s h (t-1)/t elements on the wire
    (Narayanan et al. 2021, section 3.2); 2 more when the forward is recomputed in full. With sequence parallelism each
    is an all-gather and a reduce-scatter of the same tensor, the same bytes (Korthikanti et al. 2022, section 4.2.2),
    and backward gathers the two layer inputs once more.
    """
    t = training.tp
    if t == 1:
        return []
    times = training.layers_per_rank[stage] * training.num_microbatches
    size = message_bytes(training)
    again = 2 if training.recompute == "full" else 0
    if not training.sequence_parallel:
        return [Traffic("tp", "all_reduce", (4 + again) * times, size, t)]
    return [
        Traffic("tp", "all_gather", (6 + again) * times, size, t),
        Traffic("tp", "reduce_scatter", (4 + again) * times, size, t),
    ]


def pipeline_traffic(training: Training, stage: int = 0) -> list[Traffic]:
    """Messages between pipeline ranks: b s h elements per microbatch and boundary each way, b s h/t if cut over tp.

    Narayanan et al. 2021, sections 3.2 and 4.1. With v stages per rank v times as many; the pipeline's ends send one
    way only, so of a rank's 2 v messages per microbatch the first and the last rank send 2 v - 1.
    """
    if training.pp == 1:
        return []
    cut = training.tp if training.scatter_gather or training.sequence_parallel else 1
    at_end = stage in (0, training.pp - 1)
    count = (2 * training.virtual - at_end) * training.num_microbatches
    return [Traffic("pp", "send", count, message_bytes(training) / cut, 2)]


def data_traffic(training: Training, stage: int = 0) -> list[Traffic]:
    """Gradient averaging of psi parameters: 2 psi elements a rank, 3 psi with ZeRO stage 3.

    Rajbhandari et al. 2019 (arXiv 1910.02054), section 7: all-reduce, or reduce-scatter and all-gather of parameters
    (stages 1 and 2); stage 3 gathers them for forward and again for backward, per microbatch. (d-1)/d on a ring.
    """
    d = training.dp
    if d == 1:
        return []
    parameters = parameters_of_rank(training, stage)
    gradients = parameters * training.gradient_bytes
    if not training.zero:
        return [Traffic("dp", "all_reduce", 1, gradients, d)]
    gathers = 2 * training.num_microbatches if training.zero == 3 else 1
    return [Traffic("dp", "reduce_scatter", 1, gradients, d), Traffic("dp", "all_gather", gathers, 2 * parameters, d)]


def message_bytes(training: Training) -> float:
    """The activation between two layers: b s h elements of 2 bytes."""
    return 2.0 * training.microbatch * training.model.sequence * training.model.hidden
