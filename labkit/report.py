"""A trace in a few numbers, for a program (`summary`) or a person (`describe`).

In: a Trace. Out: a dict of plain data, or text.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labkit import analysis
from labkit.trace import Trace


def summary(trace: Trace) -> dict[str, Any]:
    """What `labkit run --json` prints. Bubble and sync as `analysis.bubble` and `analysis.sync_totals` define them."""
    bubble, meta = analysis.bubble(trace), trace.meta
    peaks = analysis.memory_peaks(trace)
    return {
        "kind": meta.source,
        "world_size": meta.num_ranks,
        "plan": meta.plan,
        "losses": [_finite(loss) for loss in meta.losses],
        "equality": meta.equality and {name: _finite(value) for name, value in meta.equality.items()},
        "counts": analysis.counts(trace),
        "sync": analysis.sync_totals(trace),
        "bubble_fraction": bubble.of_total if bubble else None,
        "bubble_of_ideal": bubble.of_ideal if bubble else None,
        "seconds": meta.seconds,
        "dropped_events": meta.dropped_events,
        "memory_peak_bytes": [peaks.get(rank, 0) for rank in range(meta.num_ranks)],
        "unmatched_syncs": analysis.unmatched_syncs(trace).height,
        "versions": meta.versions,
        "notes": analysis.all_notes(trace),
    }


def describe(trace: Trace) -> str:
    """The same for reading."""
    facts = summary(trace)
    lines = [trace.title, f"  {trace.events.height:,} events on {facts['world_size']} ranks"]
    losses = trace.meta.losses
    if losses:
        lines.append(f"  loss {losses[0]:.4f} -> {losses[-1]:.4f} in {len(losses)} steps")
    lines += [_equality_line(trace.meta.equality)] if trace.meta.equality else []
    lines += [
        f"  {axis}: {total['count']:g} syncs of {size_words(total['bytes'])} together, per rank and step"
        for axis, total in facts["sync"].items()
    ]
    if facts["bubble_fraction"] is not None:
        lines.append(f"  bubble {facts['bubble_fraction']:.1%} of total time ({facts['kind']})")
    if any(facts["memory_peak_bytes"]):
        peaks = ", ".join(size_words(peak) for peak in facts["memory_peak_bytes"])
        lines.append(f"  most memory held per rank: {peaks}")
    seconds = facts["seconds"]
    if "step_median" in seconds:
        lines.append(
            f"  {seconds['to_first_step']:.2f} s to the first step, {seconds['step_median'] * 1e3:.1f} ms a step"
            + (f", {seconds['total']:.2f} s in all" if "total" in seconds else "")
        )
    lines += [f"  note: {note}" for note in facts["notes"]]
    return "\n".join(lines)


def _finite(value: float) -> float | None:
    """JSON has no word for not-a-number."""
    return value if math.isfinite(value) else None


def worst_difference(equality: dict[str, Any]) -> float:
    """The largest of the differences; not a number if any is not."""
    return float(np.max([value for name, value in equality.items() if name.endswith("_max_abs_diff")]))


def _equality_line(equality: dict[str, Any]) -> str:
    worst = worst_difference(equality)
    same = "replicas bit-identical" if equality["replicas_identical"] else "REPLICAS DIFFER"
    return f"  largest difference from the serial run: {worst:.1e} (losses, gradients, weights); {same}"


def size_words(size_bytes: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            return f"{size_bytes:.0f} {unit}" if size_bytes >= 1000 else f"{size_bytes:.3g} {unit}"
        size_bytes /= 1024
    raise AssertionError
