"""Runs that are kept in `assets/captures`, so that lessons open at once.

In: a Plan. Out: the capture of this very plan, if there is one. A capture's file name holds a digest of its plan, so a
changed plan never meets another plan's events. `make captures` runs the lessons and keeps what they ask for.
"""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

import msgspec

from labkit.plan import Plan
from labkit.trace import Trace, TraceError, load

CAPTURES = Path(__file__).parent.parent / "assets" / "captures"


def kept_capture(plan: Plan, *, verify: bool = False) -> Trace | None:
    """The capture of this plan in `assets/captures`, if there is one that can be read."""
    try:
        trace = load(capture_path(plan))
    except TraceError:
        return None
    return trace if trace.meta.equality or not verify else None


def keep_capture(trace: Trace, plan: Plan) -> Path:
    """Save the run of a plan where `recall` finds it, with a note of when and where it was recorded."""
    where = f"on a machine with {trace.meta.num_cores} cores"
    note = f"recorded on {date.today()} {where}; run it to see times of this machine"
    path = capture_path(plan)
    path.parent.mkdir(parents=True, exist_ok=True)
    return trace.with_meta(notes=(*trace.meta.notes, note)).save(path)


def capture_path(plan: Plan) -> Path:
    """`digits-dp4-1a2b3c4d5e.parquet`: readable in front, a digest of all that the plan sets behind.

    What is left at its default does not count, so that a field that Plan gets later spoils no capture.
    """
    default = DEFAULT.to_dict()
    chosen = {name: value for name, value in plan.to_dict().items() if value != default[name]}
    digest = hashlib.sha256(msgspec.json.encode(chosen, order="sorted")).hexdigest()[:10]
    degrees = "".join(f"-{axis}{getattr(plan, axis)}" for axis in ("dp", "tp", "pp") if getattr(plan, axis) > 1)
    return CAPTURES / f"{plan.task}{degrees or '-serial'}-{digest}.parquet"


DEFAULT = Plan()
