"""What all-reduces from single messages cost: rounds and bytes, counted in runs, beside the closed forms.

In: traces of runs with `grad_sync` ring, tree or gather. Out: a table. Pure: no widget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import polars as pl

from labkit.trace import Trace
from labkit.view.sends import AllReduce, all_reduces


@dataclass(frozen=True)
class ClosedForm:
    """Of n ranks: rounds, and what the busiest rank sends as a multiple of the tensor."""

    rounds: Callable[[int], float]
    sent: Callable[[int], float]


CLOSED_FORMS = {
    "gather": ClosedForm(lambda n: 2 * (n - 1), lambda n: n - 1),
    "ring": ClosedForm(lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n),
    "tree": ClosedForm(lambda n: 2 * math.log2(n), lambda n: math.log2(n)),
}
"""Ring: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms". Tree: n a power of two, the whole tensor in
every message. Gather: one rank takes in everything, then sends to all, one message at a time."""


_SCHEMA = {
    "shape": pl.String,
    "num_ranks": pl.Int64,
    "size_bytes": pl.Int64,
    "messages": pl.Int64,
    "rounds": pl.Int64,
    "rounds_theory": pl.Float64,
    "busiest_bytes": pl.Int64,
    "sent": pl.Float64,
    "sent_theory": pl.Float64,
}


def all_reduce_costs(traces: Iterable[Trace]) -> pl.DataFrame:
    """A row for the first all-reduce of every trace, by shape and number of ranks.

    Columns shape, num_ranks, size_bytes (of the tensor), messages, rounds, rounds_theory, busiest_bytes (sent by the
    rank that sends most), sent (busiest_bytes / size_bytes), sent_theory. Runs without such messages are left out.
    """
    found = [(_shape(trace), calls[0]) for trace in traces if (calls := all_reduces(trace))]
    rows = [_row(shape, call) for shape, call in found if shape in CLOSED_FORMS]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").sort("shape", "num_ranks")


def _shape(trace: Trace) -> str:
    """What the plan asked for: between two ranks a tree and a gather send the same messages."""
    return str((trace.meta.plan or {}).get("grad_sync"))


def _row(shape: str, call: AllReduce) -> tuple[object, ...]:
    n, theory, sent = len(call.group), CLOSED_FORMS[shape], Counter()
    for send in call.sends:
        sent[send.sender] += send.size_bytes
    busiest = max(sent.values())
    counted = (call.size_bytes, len(call.sends), call.num_rounds, theory.rounds(n))
    return (shape, n, *counted, busiest, busiest / call.size_bytes, theory.sent(n))
