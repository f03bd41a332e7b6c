"""Traces of one training over emulated links: two replicas, one all-reduce after backward, times worked out by hand."""

from labkit.trace import Meta, Trace, from_events

SCALE = 100


def over(bandwidth_bytes_s: float, *, latency_s: float = 5e-6, size_bytes: int = 80_000, num_steps: int = 2) -> Trace:
    """Two ranks: forward 100 us, backward 200 us, then an all-reduce of `size_bytes`. All `SCALE` times slower."""
    took_ns = round(1e9 * SCALE * (latency_s + size_bytes / bandwidth_bytes_s))  # two ranks send the tensor once
    us, rows, step_ns = 1000 * SCALE, [], 300 * 1000 * SCALE + took_ns
    for step in range(num_steps):
        for rank in (0, 1):
            at = step * step_ns
            common = dict(rank=rank, step=step)
            for kind, start, end in (("stage_forward", 0, 100), ("stage_backward", 100, 300)):
                rows.append(
                    dict(kind=kind, start_ns=at + start * us, end_ns=at + end * us, stage=0, microbatch=0, **common)
                )
            moment = dict(start_ns=at + 300 * us, end_ns=at + step_ns)
            sync = dict(op="all_reduce", axis="dp", group=[0, 1], seq=step, **moment, **common)
            rows.append(dict(kind="sync", size_bytes=size_bytes, dtype="float32", **sync))
            rows.append(dict(kind="wait", **sync))
            rows.append(dict(kind="step", start_ns=at, end_ns=at + step_ns, **common))
    link = {"dp": {"latency_s": latency_s, "bandwidth_bytes_s": bandwidth_bytes_s, "name": "own", "source": "test"}}
    plan = {"pp": 1, "dp": 2, "tp": 1, "link": link, "time_scale": SCALE}
    return from_events(rows, Meta("paced", plan=plan, num_ranks=2))
