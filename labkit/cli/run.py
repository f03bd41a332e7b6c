"""labkit run: a flag for each field of a Plan."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from labkit.cli.common import check_out, errors, flag, read_links, save
from labkit.quantity import seconds


def run(
    plan: Annotated[Path | None, flag("A plan's JSON file; flags given beside it win.")] = None,
    task: Annotated[
        str | None, flag("digits, digits_cnn, chars, or your own: file.py:function, which returns own_task(...).")
    ] = None,
    layers: Annotated[int | None, flag("Equal layers of the model (4).")] = None,
    width: Annotated[int | None, flag("Features between layers (64).")] = None,
    heads: Annotated[int | None, flag("Attention heads of chars (4).")] = None,
    context: Annotated[int | None, flag("Characters per sample of chars (32).")] = None,
    dp: Annotated[int | None, flag("Data parallel replicas (1).")] = None,
    tp: Annotated[int | None, flag("Tensor parallel ranks (1).")] = None,
    pp: Annotated[int | None, flag("Pipeline ranks (1).")] = None,
    zero: Annotated[int | None, flag("ZeRO stage 0 to 3 (0).")] = None,
    sequence_parallel: Annotated[bool | None, flag("Split activations along the sequence.")] = None,
    recompute: Annotated[bool | None, flag("Activation checkpointing.")] = None,
    offload: Annotated[bool | None, flag("FSDP2's CPU offload.")] = None,
    schedule: Annotated[str | None, flag("Pipeline schedule; an unknown name lists the known ones (1f1b).")] = None,
    order: Annotated[Path | None, flag("Your own schedule: a CSV file, one line of actions per pipeline rank.")] = None,
    microbatches: Annotated[int | None, flag("Pieces of a replica's batch.")] = None,
    virtual: Annotated[int | None, flag("Stages per pipeline rank.")] = None,
    split: Annotated[str | None, flag("Layers of every stage, e.g. 3,2,2,1 (equal).")] = None,
    global_batch: Annotated[int | None, flag("Samples of one step over all replicas (32).")] = None,
    steps: Annotated[int | None, flag("Training steps (3).")] = None,
    optimizer: Annotated[str | None, flag("sgd, adam or adamw (sgd).")] = None,
    lr: Annotated[float | None, flag("Learning rate.")] = None,
    seed: Annotated[int | None, flag("Seed of weights and sample order (0).")] = None,
    dtype: Annotated[str | None, flag("float32, float64 or bfloat16 (float32).")] = None,
    backend: Annotated[str | None, flag("gloo, or nccl with a GPU per rank (gloo).")] = None,
    bucket_mb: Annotated[float | None, flag("DDP's gradient bucket in MiB (25).")] = None,
    grad_sync: Annotated[str | None, flag("engine, or by hand: naive, ring, tree, gather, off (engine).")] = None,
    tensor: Annotated[str | None, flag("dtensor or by_hand (dtensor).")] = None,
    pace: Annotated[str | None, flag("Set durations: forward=20ms,backward=40ms,optimizer=5ms.")] = None,
    slow: Annotated[str | None, flag("Ranks whose set durations are longer: 2=1.5 (with --pace).")] = None,
    link: Annotated[
        list[str] | None, flag("Emulated link: a preset or latency=5us,bandwidth=25GB/s; one axis: pp:pcie4.")
    ] = None,
    time_scale: Annotated[float | None, flag("Make all set times so many times slower (1).")] = None,
    record: Annotated[str | None, flag("Of compute,sync,memory (all); none for nothing.")] = None,
    value_limit_bytes: Annotated[str | None, flag("Record tensor values up to this size, e.g. 64KiB (0).")] = None,
    max_events: Annotated[int | None, flag("Events kept per rank (1,000,000).")] = None,
    max_ranks: Annotated[int | None, flag("Most ranks to start here (16).")] = None,
    hang_after: Annotated[str, flag("Time without any event that counts as a hang (8s).")] = "8s",
    verify: Annotated[bool, flag("Train serially too and compare losses, gradients and weights.")] = False,
    out: Annotated[Path | None, flag("Save the trace to this .parquet file.")] = None,
    as_json: Annotated[bool, flag("Print one JSON object.", "--json")] = False,
) -> None:
    """Run a plan as real processes and say what happened."""
    given = {name: value for name, value in locals().items() if value is not None}
    for name in ("verify", "out", "as_json", "plan", "hang_after"):
        given.pop(name, None)
    with errors():
        from labkit import lab, report

        own = _own_task(given)
        checked = _plan(plan, given)
        check_out(out)
        options = {"on_progress": None if as_json else _show_progress, "hang_after_s": seconds(hang_after)}
        try:
            trace = lab.run(checked, task=own, verify=verify, **options)
        except lab.RunError as error:
            if out is not None:
                save(error.trace, out)
            raise
        print(json.dumps(report.summary(trace)) if as_json else report.describe(trace))
        if out is not None:
            save(trace, out, quiet=as_json)


def _own_task(given: dict[str, Any]) -> Any:
    """The task that --task file.py:function makes; the plan gets its number of layers."""
    if ":" not in given.get("task", ""):
        return None
    from labkit.engine.own import load_task

    task = load_task(given["task"])
    given |= {"task": "own", "layers": given.get("layers", len(task.names))}
    return task


def _plan(path: Path | None, given: dict[str, Any]) -> Any:
    from labkit.plan import Plan, PlanError

    if "order" in given:
        given["order"] = _read(given["order"])
    if "link" in given:
        given["link"] = read_links(given["link"])
    if "split" in given:
        try:
            given["split"] = tuple(int(part) for part in given["split"].split(","))
        except ValueError:
            raise PlanError(f"split {given['split']!r}: give whole numbers, e.g. 3,2,2,1") from None
    if given.get("record") == "none":
        given["record"] = ()
    return Plan.from_dict((Plan.load(path).to_dict() if path else {}) | given)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the schedule {path}: {error}") from None


def _show_progress(progress: Any) -> None:
    if sys.stderr.isatty() and progress.place:
        wait = f", about {progress.seconds_left:.0f} s" if progress.seconds_left is not None else ""
        print(f"\r  place {progress.place} in line{wait}   ", end="", file=sys.stderr, flush=True)
    elif sys.stderr.isatty():
        left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
        done = min(progress.steps_done)
        print(f"\r  step {done} of {progress.steps}{left}   ", end="", file=sys.stderr, flush=True)
        if done == progress.steps:
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
