"""Traces that say what ranks held: parameters from the start, activations that rise and fall, then an optimizer."""

from labkit.trace import Meta, Trace, from_events

MS = 1_000_000


def piles(num_ranks: int = 2, num_steps: int = 2, microbatches: int = 4) -> Trace:
    """Rank r holds 100 (r + 1) bytes of parameters and at most `microbatches` activations of 50 bytes."""
    rows = []
    for rank in range(num_ranks):
        held = dict(param_bytes=100 * (rank + 1), grad_bytes=0, optimizer_bytes=0, activation_bytes=0)
        t = 0
        for step in range(num_steps):
            common, begin = dict(rank=rank, step=step, stage=0), t
            for m in range(microbatches):
                held["activation_bytes"] = 50 * (m + 1)
                rows.append(dict(kind="stage_forward", microbatch=m, start_ns=t, end_ns=t + MS, **common, **held))
                t += MS
            held["grad_bytes"] = held["param_bytes"]
            for m in range(microbatches):
                held["activation_bytes"] -= 50
                rows.append(dict(kind="stage_backward", microbatch=m, start_ns=t, end_ns=t + MS, **common, **held))
                t += MS
            held["optimizer_bytes"] = 2 * held["param_bytes"]
            rows.append(dict(kind="optimizer", start_ns=t, end_ns=t + MS, **common, **held))
            rows.append(dict(kind="step", start_ns=begin, end_ns=t + MS, **common))
            t += MS
            held["grad_bytes"] = 0
    plan = {"task": "digits", "pp": 1, "dp": num_ranks, "tp": 1}
    return from_events(rows, Meta("measured", plan=plan, num_ranks=num_ranks))
