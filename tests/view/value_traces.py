"""Traces with captured values: a linear layer cut over ranks by rows or by columns of its weight."""

import numpy as np

from labkit.trace import Meta, Trace, from_events


def cut_layer(cut: str = "rows", n: int = 2, *, num_in: int = 6, num_out: int = 4, spoil: float = 0.0) -> Trace:
    """fc0 with ReLU, 3 samples. `spoil` is added to the captured output, so that nothing fits any more."""
    rng = np.random.default_rng(7)
    x, weight, bias = rng.normal(size=(3, num_in)), rng.normal(size=(num_out, num_in)), rng.normal(size=num_out)
    whole, rows = np.maximum(x @ weight.T + bias, 0) + spoil, []
    for rank in range(n):
        if cut == "rows":
            part = np.array_split(np.arange(num_out), n)[rank]
            kept = [("input", "fc0", x), ("weight", "fc0.linear.weight", weight[part])]
            kept += [("weight", "fc0.linear.bias", bias[part]), ("output", "fc0", whole[:, part])]
        else:
            part = np.array_split(np.arange(num_in), n)[rank]
            kept = [("input", "fc0", x[:, part]), ("weight", "fc0.linear.weight", weight[:, part])]
            kept += [("weight", "fc0.linear.bias", bias), ("sync_in", "fc0", x[:, part] @ weight[:, part].T)]
            kept += [("output", "fc0", whole)]
        rows += [_value(rank, k, *one) for k, one in enumerate(kept)]
    return _trace(rows, n)


def pair(n: int = 2) -> Trace:
    """Two linear layers inside block0, 3 samples: up (8, 4) cut by rows, tanh, down (4, 8) by columns."""
    rng = np.random.default_rng(3)
    x, up, down, bias = rng.normal(size=(3, 4)), rng.normal(size=(8, 4)), rng.normal(size=(4, 8)), rng.normal(size=4)
    hidden, rows = np.tanh(x @ up.T), []
    for rank in range(n):
        part = np.array_split(np.arange(8), n)[rank]
        kept = [("input", "block0", x), ("weight", "block0.up.weight", up[part]), ("weight", "block0.down.bias", bias)]
        kept += [("weight", "block0.down.weight", down[:, part]), ("input", "block0.up", x)]
        kept += [("output", "block0.up", x @ up[part].T), ("input", "block0.down", hidden[:, part])]
        kept += [("sync_in", "block0", np.ones((3, 4))), ("sync_in", "block0", hidden[:, part] @ down[:, part].T)]
        kept += [("output", "block0.down", hidden @ down.T + bias), ("output", "block0", hidden @ down.T + bias + x)]
        rows += [_value(rank, k, *one) for k, one in enumerate(kept)]
    return _trace(rows, n, ("block0",))


def serial(num_in: int = 6, num_out: int = 4) -> Trace:
    """The same layer on one rank, its output off by 2 ** -20 as another order of adding might make it."""
    whole = cut_layer("rows", 1, num_in=num_in, num_out=num_out)
    data = whole.events.filter(op="output")["data"][0]
    off = (np.frombuffer(data) + 2.0**-20).tobytes()
    rows = [row | ({"data": off} if row["op"] == "output" else {}) for row in whole.events.to_dicts()]
    return from_events(rows, whole.meta)


def _value(rank: int, k: int, op: str, layer: str, value: np.ndarray) -> dict:
    value = np.ascontiguousarray(value)
    common = dict(kind="value", step=0, microbatch=0, start_ns=k, end_ns=k, dtype="float64", size_bytes=value.nbytes)
    return dict(rank=rank, op=op, layer=layer, shape=list(value.shape), data=value.tobytes(), **common)


def _trace(rows: list[dict], n: int, layers: tuple[str, ...] = ("fc0",)) -> Trace:
    plan = {"task": "digits", "pp": 1, "dp": 1, "tp": n}
    return from_events(rows, Meta("measured", plan=plan, num_ranks=n, layers=layers))
