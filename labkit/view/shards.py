"""Weight matrices that ranks share out, with their true values: parts, inputs, partial results, the whole.

In: a `Trace` whose values were captured (`value_limit_bytes`). Out: `Shard`s, plain arrays. Pure: no widget.

torch holds a linear layer's weight as W (out, in) and computes y = x Wᵀ + b. Cut by *rows*, every rank gets the same x
and makes some columns of y: results are set side by side. Cut by *columns*, every rank gets a slice of x and makes a
summand of the whole y: results are added up. Which of the two it was, the captured values themselves tell; a matrix
whose captured output is not what its captured input and weight give is left out.

Of a pair cut by rows, then by columns (Megatron's MLP and attention), the parts of the first are the slices of the
second: nothing is sent between, and one all-reduce adds up at the end. `Shard.feeds` names the second.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from labkit.trace import Trace

TOLERANCE = 1e-4
"""Relative to the largest number; the ranks' own products are in the run's precision."""


_Parts = list[np.ndarray]
"""One array of each rank."""

_Sent = list[_Parts]
"""What all ranks put into each of a layer's syncs, in order."""


@dataclass(frozen=True)
class Shard:
    """One weight over the ranks of a tensor parallel group, for one microbatch. All arrays have two dimensions."""

    name: str
    cut: str  # rows or columns
    ranks: tuple[int, ...]
    weights: tuple[np.ndarray, ...]  # each rank's part
    inputs: tuple[np.ndarray, ...]  # what each rank multiplied it with
    partials: tuple[np.ndarray, ...]  # what each rank made
    combined: np.ndarray  # what the ranks had together afterwards, captured
    whole: np.ndarray  # what one matrix gives
    has_relu: bool
    partials_from: str  # captured or computed
    whole_from: str
    rows: tuple[int, ...]  # of the captured weights in trace.events
    feeds: str = ""  # the weight that takes each rank's part as its slice, on the same rank

    @property
    def difference(self) -> np.ndarray:
        return self.combined - self.whole

    @property
    def max_difference(self) -> float:
        return float(np.abs(self.difference).max()) if self.difference.size else 0.0


def shards_of(trace: Trace, *, step: int | None = None, serial: Trace | None = None) -> list[Shard]:
    """Every cut weight of one step (default: the first with values), of the first replica and microbatch.

    `serial`: the same training captured on one rank; its output is then the whole one. Without it, or where its input
    differs, the whole is computed here, in double precision, from the captured parts and input.
    """
    kept = _values(trace, step)
    mesh, found = trace.meta.mesh, []
    if kept.is_empty() or mesh.tp < 2:
        return []
    weights = kept.filter((pl.col("op") == "weight") & (pl.col("shape").list.len() == 2))
    names = weights["layer"].unique(maintain_order=True)
    for pp in range(mesh.pp):
        ranks = mesh.group("tp", mesh.rank(pp=pp))
        for name in names:
            shard = _shard(kept, name, ranks, serial, trace.meta.layers)
            found += [shard] if shard else []
    return [replace(shard, feeds=_fed_by(shard, found[k + 1 :])) for k, shard in enumerate(found)]


def _fed_by(shard: Shard, later: list[Shard]) -> str:
    """The weight that takes every rank's part on that rank; "" where results are gathered, or nobody does.

    What lies between works number by number, or on a rank's own heads, so parts and slices have the same shapes.
    """
    if shard.cut != "rows" or shard.partials_from != "captured":
        return ""
    taker = next((one for one in later if one.cut == "columns" and one.ranks == shard.ranks), None)
    fits = taker is not None and all(p.shape == x.shape for p, x in zip(shard.partials, taker.inputs))
    return taker.name if fits else ""


def _values(trace: Trace, step: int | None) -> pl.DataFrame:
    kept = trace.events.with_row_index("row").filter(pl.col("kind").cast(pl.String) == "value")
    steps = kept.filter(pl.col("op") == "weight")["step"].drop_nulls()
    if steps.is_empty():
        return kept.clear()
    kept = kept.filter(pl.col("step") == (steps.min() if step is None else step))
    return kept.filter(pl.col("microbatch").is_null() | (pl.col("microbatch") == pl.col("microbatch").min()))


def _shard(
    kept: pl.DataFrame, name: str, ranks: tuple[int, ...], serial: Trace | None, layers: tuple[str, ...]
) -> Shard | None:
    """The named weight on these ranks; None where a value is missing or the numbers do not fit together."""
    layer = _layer_of(name, kept, layers)
    sent = _sent(kept, layer, ranks)
    inside = name.removesuffix(".weight")
    if _value(kept, "input", inside, ranks[0]) is not None:  # a linear layer inside a bigger one tells for itself
        layer = inside
    weights, inputs = [_value(kept, "weight", name, r) for r in ranks], [_value(kept, "input", layer, r) for r in ranks]
    outputs = [_value(kept, "output", layer, rank) for rank in ranks]
    if any(one is None for one in [*weights, *inputs, *outputs]):
        return None
    weights, inputs, outputs = ([_flat(one[0]) for one in some] for some in (weights, inputs, outputs))
    if any(w.shape[1] != x.shape[1] for w, x in zip(weights, inputs)):
        return None
    biases = [_value(kept, "weight", name.removesuffix("weight") + "bias", rank) for rank in ranks]
    biases = [0.0 if one is None else one[0] for one in biases]
    rows = tuple(_value(kept, "weight", name, rank)[1] for rank in ranks)
    is_rows = all(x.shape == inputs[0].shape and np.array_equal(x, inputs[0]) for x in inputs)
    make = _cut_by_rows if is_rows else _cut_by_columns
    parts = make(weights, inputs, outputs, biases, sent)
    if parts is None:
        return None
    whole = _serial_output(serial, kept, layer, parts["x"]) if serial is not None else None
    if whole is not None and whole.shape == parts["whole"].shape:
        parts |= {"whole": whole, "whole_from": "captured"}
    del parts["x"]
    return Shard(name=name, ranks=tuple(ranks), weights=tuple(weights), inputs=tuple(inputs), rows=rows, **parts)


def _cut_by_rows(weights: _Parts, inputs: _Parts, outputs: _Parts, biases: _Parts, _: _Sent) -> dict[str, Any] | None:
    x, weight = inputs[0].astype(np.float64), np.concatenate(weights).astype(np.float64)
    whole = x @ weight.T + (np.concatenate(biases) if all(np.ndim(b) for b in biases) else 0.0)
    gathered = outputs[0].shape == whole.shape and len(weights) > 1  # every rank ends up with all columns
    combined = outputs[0] if gathered else np.concatenate(outputs, axis=1)
    has_relu = _relu_between(whole, combined)
    if has_relu is None:
        return None
    products = [x @ w.T.astype(np.float64) + b for w, b in zip(weights, biases)]
    partials = [np.maximum(p, 0) if has_relu else p for p in products] if gathered else outputs
    return _fields("rows", x, partials, combined, whole, has_relu, "computed" if gathered else "captured")


def _cut_by_columns(
    weights: _Parts, inputs: _Parts, outputs: _Parts, biases: _Parts, sent: _Sent
) -> dict[str, Any] | None:
    x, weight = np.concatenate(inputs, axis=1).astype(np.float64), np.concatenate(weights, axis=1).astype(np.float64)
    whole, combined = x @ weight.T + biases[0], outputs[0]
    has_relu = _relu_between(whole, combined)
    if has_relu is None:
        return None
    products = [x_r.astype(np.float64) @ w.T for x_r, w in zip(inputs, weights)]
    captured = next((parts for parts in sent if _are_summands(parts, products, biases[0])), None)
    return _fields(
        "columns", x, captured or products, combined, whole, has_relu, "captured" if captured else "computed"
    )


def _are_summands(sent: _Parts, products: _Parts, bias: np.ndarray | float) -> bool:
    """Whether what was sent are these products. It may hold the bias: DTensor adds it to one of the summands."""
    if any(one.shape != product.shape for one, product in zip(sent, products)):
        return False
    return any(_close(sum(sent), sum(products) + added) for added in (0.0, bias))


def _fields(
    cut: str,
    x: np.ndarray,
    partials: _Parts,
    combined: np.ndarray,
    whole: np.ndarray,
    has_relu: bool,
    partials_from: str,
) -> dict[str, Any]:
    """A shard's fields, as far as the values tell them; and the whole input x."""
    whole = np.maximum(whole, 0) if has_relu else whole
    found = dict(cut=cut, x=x, partials=tuple(partials), combined=combined.astype(np.float64), whole=whole)
    return found | dict(has_relu=has_relu, partials_from=partials_from, whole_from="computed")


def _relu_between(product: np.ndarray, output: np.ndarray) -> bool | None:
    """Whether the captured output is the product after a ReLU (True) or as it is (False); None: neither."""
    if product.shape != output.shape:
        return None
    return False if _close(product, output) else True if _close(np.maximum(product, 0), output) else None


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.abs(one - other).max(initial=0) <= TOLERANCE * max(1e-12, np.abs(other).max(initial=0)))


def _serial_output(serial: Trace, kept: pl.DataFrame, layer: str, x: np.ndarray) -> np.ndarray | None:
    """The layer's output in the serial run, if it had the same input."""
    steps = kept["step"].drop_nulls()
    values = _values(serial, None if steps.is_empty() else int(steps[0]))
    found, output = _value(values, "input", layer, 0), _value(values, "output", layer, 0)
    if found is None or output is None or _flat(found[0]).shape != x.shape or not _close(_flat(found[0]), x):
        return None
    return _flat(output[0]).astype(np.float64)


def _layer_of(weight: str, kept: pl.DataFrame, layers: tuple[str, ...]) -> str:
    """The named layer that a parameter belongs to: "fc0" of "fc0.linear.weight"."""
    known = layers or tuple(kept.filter(pl.col("op") == "input")["layer"].drop_nulls().unique())
    holding = [layer for layer in known if weight.startswith(f"{layer}.")]
    return max(holding, key=len, default=weight.partition(".")[0])


def _value(kept: pl.DataFrame, op: str, name: str, rank: int) -> tuple[np.ndarray, int] | None:
    """The first such value of a rank and its row in the trace."""
    found = kept.filter((pl.col("op") == op) & (pl.col("layer") == name) & (pl.col("rank") == rank)).head(1)
    if found.is_empty():
        return None
    one = found.row(0, named=True)
    return _array(one), one["row"]


def _sent(kept: pl.DataFrame, layer: str, ranks: tuple[int, ...]) -> _Sent:
    put_in = kept.filter((pl.col("op") == "sync_in") & (pl.col("layer") == layer)).sort("start_ns", maintain_order=True)
    of_ranks = [[_flat(_array(one)) for one in put_in.filter(rank=rank).iter_rows(named=True)] for rank in ranks]
    return [list(parts) for parts in zip(*of_ranks)]


def _array(row: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(row["data"], row["dtype"]).reshape(row["shape"])


def _flat(value: np.ndarray) -> np.ndarray:
    """(b, s, h) -> (b s, h)"""
    return value.reshape(-1, value.shape[-1]) if value.ndim > 1 else value.reshape(1, -1)
