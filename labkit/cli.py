"""The notebook's verbs in a shell: run, show, merge, doctor, lab.

In: flags, one for each field of a Plan. Out: text, or one JSON object. Exit code 2: bad input; 1: the run failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="See distributed training happen, from real runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    app()


def _flag(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, show_default=False)


@app.command()
def run(
    plan: Annotated[Path | None, _flag("A plan's JSON file; flags given beside it win.")] = None,
    task: Annotated[str | None, _flag("digits, digits_cnn or chars.")] = None,
    layers: Annotated[int | None, _flag("Equal layers of the model (4).")] = None,
    width: Annotated[int | None, _flag("Features between layers (64).")] = None,
    heads: Annotated[int | None, _flag("Attention heads of chars (4).")] = None,
    context: Annotated[int | None, _flag("Characters per sample of chars (32).")] = None,
    dp: Annotated[int | None, _flag("Data parallel replicas (1).")] = None,
    tp: Annotated[int | None, _flag("Tensor parallel ranks (1).")] = None,
    pp: Annotated[int | None, _flag("Pipeline ranks (1).")] = None,
    zero: Annotated[int | None, _flag("ZeRO stage 0 to 3 (0).")] = None,
    sequence_parallel: Annotated[bool | None, _flag("Split activations along the sequence.")] = None,
    recompute: Annotated[bool | None, _flag("Activation checkpointing.")] = None,
    offload: Annotated[bool | None, _flag("FSDP2's CPU offload.")] = None,
    schedule: Annotated[str | None, _flag("Pipeline schedule; an unknown name lists the known ones (1f1b).")] = None,
    microbatches: Annotated[int | None, _flag("Pieces of a replica's batch.")] = None,
    virtual: Annotated[int | None, _flag("Stages per pipeline rank.")] = None,
    split: Annotated[str | None, _flag("Layers of every stage, e.g. 3,2,2,1 (equal).")] = None,
    global_batch: Annotated[int | None, _flag("Samples of one step over all replicas (32).")] = None,
    steps: Annotated[int | None, _flag("Training steps (3).")] = None,
    optimizer: Annotated[str | None, _flag("sgd, adam or adamw (sgd).")] = None,
    lr: Annotated[float | None, _flag("Learning rate.")] = None,
    seed: Annotated[int | None, _flag("Seed of weights and sample order (0).")] = None,
    dtype: Annotated[str | None, _flag("float32, float64 or bfloat16 (float32).")] = None,
    backend: Annotated[str | None, _flag("gloo, or nccl with a GPU per rank (gloo).")] = None,
    bucket_mb: Annotated[float | None, _flag("DDP's gradient bucket in MiB (25).")] = None,
    grad_sync: Annotated[str | None, _flag("engine, or by hand: naive, ring, tree, gather, off (engine).")] = None,
    tensor: Annotated[str | None, _flag("dtensor or by_hand (dtensor).")] = None,
    pace: Annotated[str | None, _flag("Set durations: forward=20ms,backward=40ms,optimizer=5ms.")] = None,
    link: Annotated[
        list[str] | None, _flag("Emulated link: a preset or latency=5us,bandwidth=25GB/s; one axis: pp:pcie4.")
    ] = None,
    time_scale: Annotated[float | None, _flag("Make all set times so many times slower (1).")] = None,
    record: Annotated[str | None, _flag("Of compute,sync,memory (all); none for nothing.")] = None,
    value_limit_bytes: Annotated[str | None, _flag("Record tensor values up to this size, e.g. 64KiB (0).")] = None,
    max_events: Annotated[int | None, _flag("Events kept per rank (1,000,000).")] = None,
    max_ranks: Annotated[int | None, _flag("Most ranks to start here (16).")] = None,
    verify: Annotated[bool, _flag("Train serially too and compare losses, gradients and weights.")] = False,
    out: Annotated[Path | None, _flag("Save the trace to this .parquet file.")] = None,
    as_json: Annotated[bool, _flag("Print one JSON object.", "--json")] = False,
) -> None:
    """Run a plan as real processes and say what happened."""
    given = {name: value for name, value in locals().items() if value is not None}
    for name in ("verify", "out", "as_json", "plan"):
        given.pop(name, None)
    with _errors():
        from labkit import lab, report

        checked = _plan(plan, given)
        _check_out(out)
        trace = lab.run(checked, verify=verify, on_progress=None if as_json else _show_progress)
        print(json.dumps(report.summary(trace)) if as_json else report.describe(trace))
        if out is not None:
            _save(trace, out, quiet=as_json)


@app.command()
def show(trace: Path) -> None:
    """Say what a saved trace holds."""
    with _errors():
        from labkit import report
        from labkit.trace import load

        print(report.describe(load(trace)))


@app.command()
def merge(
    folder: Annotated[Path, typer.Argument(help="The --out folder of labkit.engine.worker under torchrun.")],
    out: Annotated[Path, _flag("The .parquet file to write.")] = Path("trace.parquet"),
) -> None:
    """Merge what the ranks of a torchrun job left behind into one trace."""
    with _errors():
        from labkit import lab, report

        _check_out(out)
        trace = lab.merge_folder(folder)
        print(report.describe(trace))
        _save(trace, out)


@app.command()
def doctor() -> None:
    """Say what this machine can run, and why not."""
    with _errors():
        from labkit.doctor import examine

        findings = examine()
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'no  '}{finding.what}: {finding.detail}")
        if not all(finding.ok for finding in findings if finding.needed):
            raise typer.Exit(1)


@app.command()
def lab(
    port: Annotated[int, _flag("Port on this machine (first free from 8866).")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    notebooks: Annotated[Path | None, _flag("Folder of dashboards (the project's own).")] = None,
) -> None:
    """Open the dashboards in the browser."""
    with _errors():
        from labkit.serve import serve

        serve(notebooks, port=port, open_browser=browser)


# ---- parts of the commands


def _plan(path: Path | None, given: dict[str, Any]) -> Any:
    from labkit.plan import Plan, PlanError

    if "link" in given:
        given["link"] = _link(given["link"])
    if "split" in given:
        try:
            given["split"] = tuple(int(part) for part in given["split"].split(","))
        except ValueError:
            raise PlanError(f"split {given['split']!r}: give whole numbers, e.g. 3,2,2,1") from None
    if given.get("record") == "none":
        given["record"] = ()
    return Plan.from_dict((Plan.load(path).to_dict() if path else {}) | given)


def _link(parts: list[str]) -> str | dict[str, str]:
    """One link for all axes, or pp:pcie4 for one axis each."""
    pairs = [part.partition(":") for part in parts]
    if len(parts) == 1 and not pairs[0][1]:
        return parts[0]
    odd = [part for part, (_, colon, _) in zip(parts, pairs, strict=True) if not colon]
    if odd:
        raise ValueError(f"link {odd[0]!r}: with several links name the axis of each, e.g. --link dp:eth10")
    return {axis: spec for axis, _, spec in pairs}


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    folder = out.resolve().parent
    if out.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"cannot write {out}: give a file name in a folder that exists and is writable")


def _save(trace: Any, out: Path, *, quiet: bool = False) -> None:
    try:
        trace.save(out)
    except OSError as error:
        with tempfile.NamedTemporaryFile(prefix="labkit-", suffix=".parquet", delete=False) as elsewhere:
            trace.save(elsewhere.name)
        raise OSError(f"{error}. The trace is not lost: it is in {elsewhere.name}") from error
    if not quiet:
        print(f"saved to {out}")


def _show_progress(progress: Any) -> None:
    if sys.stderr.isatty():
        left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
        done = min(progress.steps_done)
        print(f"\r  step {done} of {progress.steps}{left}   ", end="", file=sys.stderr, flush=True)
        if done == progress.steps:
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Errors as one readable message instead of a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; all ranks were stopped", file=sys.stderr)
        raise typer.Exit(130) from None
    except (ValueError, FileNotFoundError) as error:
        print(f"labkit: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except (RuntimeError, OSError) as error:
        print(f"labkit: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
