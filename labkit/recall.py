"""A run that was kept: lessons open at once from a real capture, and run live as soon as their plan is changed.

In: a Plan. Out: the capture of this very plan from `assets/captures`, or a run now. A capture's file name is a digest
of its plan, so a changed plan never meets another plan's events. `make captures` runs the lessons and keeps what they
asked for.
"""

from __future__ import annotations

import hashlib
import os
from datetime import date
from pathlib import Path

import msgspec

from labkit.lab import run
from labkit.plan import Plan
from labkit.trace import Trace, TraceError, load

CAPTURES = Path(__file__).parent.parent / "assets" / "captures"

KEEP = "LABKIT_KEEP_CAPTURES"
"""Environment variable: set while captures are made, so that what had to be run is kept."""


def recall(plan: Plan, *, verify: bool = False) -> Trace:
    """The kept capture of this plan, else a run of it now. Errors are those of `labkit.run`.

    verify: with the comparison to the serial run; a capture without one does not serve.
    """
    kept = kept_capture(plan, verify=verify)
    if kept is not None:
        return kept
    trace = run(plan, verify=verify)
    if os.environ.get(KEEP):
        keep_capture(trace, plan)
    return trace


def kept_capture(plan: Plan, *, verify: bool = False) -> Trace | None:
    """The capture of this plan in `assets/captures`, if there is one that can be read."""
    try:
        trace = load(capture_path(plan))
    except TraceError:
        return None
    return trace if trace.meta.equality or not verify else None


def keep_capture(trace: Trace, plan: Plan) -> Path:
    """Save the run of a plan where `recall` finds it, with a note of when and where it was recorded."""
    note = f"recorded on {date.today()} on a machine with {trace.meta.num_cores} cores; run it to see this machine's"
    path = capture_path(plan)
    path.parent.mkdir(parents=True, exist_ok=True)
    return trace.with_meta(notes=(*trace.meta.notes, note)).save(path)


def capture_path(plan: Plan) -> Path:
    """`digits-dp4-1a2b3c4d5e.parquet`: readable in front, the digest of the whole plan behind."""
    digest = hashlib.sha256(msgspec.json.encode(plan.to_dict(), order="sorted")).hexdigest()[:10]
    degrees = "".join(f"-{axis}{getattr(plan, axis)}" for axis in ("dp", "tp", "pp") if getattr(plan, axis) > 1)
    return CAPTURES / f"{plan.task}{degrees or '-serial'}-{digest}.parquet"
