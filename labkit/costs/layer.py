"""What one transformer layer computes on one rank: matrix products, passes over memory, kernels.

In: a Model, the microbatch, the tensor parallel degree. Out: lists and counts that a Device turns into seconds.
Counted for a layer with fused kernels (bias + GELU, bias + dropout + residual, scale + mask + softmax; Narayanan et
al. 2021, section 4.2) and 2-byte elements; a pass reads or writes one tensor once, a dropout mask counts half.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.costs.model import Model


@dataclass(frozen=True)
class Product:
    """`batch` matrix products (rows x depth) @ (depth x columns)."""

    rows: float
    columns: float
    depth: float
    batch: float = 1

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.rows * self.columns * self.depth

    def backward_input(self) -> Product:
        """The gradient's product with the second factor."""
        return Product(self.rows, self.depth, self.columns, self.batch)

    def backward_weight(self) -> Product:
        """The first factor's product with the gradient."""
        return Product(self.depth, self.columns, self.rows, self.batch)


@dataclass(frozen=True)
class Passes:
    """Passes over memory: tensors of b s h elements that every rank holds whole, that tp cuts, and a b s s scores."""

    whole: float
    cut: float
    scores: float


FORWARD_PASSES = Passes(whole=11, cut=16, scores=4.5)
"""whole: two norms 2 x 2, two bias + dropout + residual 2 x 3.5. cut: q, k, v laid out anew 6, context 2, bias + GELU
on 4 h 8. scores: softmax 2, dropout 2.5."""
BACKWARD_PASSES = Passes(whole=21, cut=27, scores=5.5)
"""whole: norms 2 x 4, dropout and residual 2 x 5.5, bias gradients 2. cut: GELU 12, layouts 8, bias gradients 7.
scores: softmax 3, dropout 2.5."""
CORE_PASSES = Passes(whole=0, cut=0, scores=4.5)
"""What selective recomputation does again."""

FORWARD_KERNELS = 20
"""Kernels of a layer's forward: 6 products, 2 norms, 4 layouts, softmax, dropout, GELU, 2 bias + dropout, 3 biases."""
BACKWARD_KERNELS = 40
"""Twice as many: every product has two gradients."""


def linear_products(model: Model, microbatch: int, tp: int) -> tuple[Product, ...]:
    """The four linear layers: q, k, v; attention's output; up to 4 h; down. 24 b s h^2 / t FLOPs."""
    rows, h = microbatch * model.sequence, model.hidden
    return (
        Product(rows, 3 * h / tp, h),
        Product(rows, h, h / tp),
        Product(rows, 4 * h / tp, h),
        Product(rows, h, 4 * h / tp),
    )


def attention_products(model: Model, microbatch: int, tp: int) -> tuple[Product, ...]:
    """Queries by keys, and scores by values, for every head of the rank. 4 b s^2 h / t FLOPs."""
    s, head_size = model.sequence, model.hidden / model.heads
    batch = microbatch * model.heads / tp
    return Product(s, s, head_size, batch), Product(s, head_size, s, batch)


def head_product(model: Model, microbatch: int, tp: int) -> Product:
    """The output layer. 2 b s h V / t FLOPs."""
    return Product(microbatch * model.sequence, model.vocabulary / tp, model.hidden)


def pass_bytes(passes: Passes, model: Model, microbatch: int, tp: int, *, sequence_parallel: bool = False) -> float:
    """Bytes that `passes` move on one rank. Sequence parallelism cuts `whole` too."""
    unit = 2.0 * microbatch * model.sequence * model.hidden
    scores = 2.0 * microbatch * model.heads * model.sequence**2 / tp
    whole = passes.whole / tp if sequence_parallel else passes.whole
    return (whole + passes.cut / tp) * unit + passes.scores * scores
