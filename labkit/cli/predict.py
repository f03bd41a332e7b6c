"""labkit predict, scorecard, calibrate: what a step would take, how far off that is, and what this machine does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labkit.cli.common import check_out, errors, flag, save

if TYPE_CHECKING:
    import polars as pl

    from labkit.cluster import Cluster
    from labkit.predict import Prediction

_SIZES = ("layers", "hidden", "heads", "sequence", "vocabulary")


def predict(
    layers: Annotated[int | None, flag("Transformer layers.")] = None,
    hidden: Annotated[int | None, flag("Hidden size.")] = None,
    heads: Annotated[int | None, flag("Attention heads.")] = None,
    sequence: Annotated[int | None, flag("Tokens per sample (2048).")] = None,
    vocabulary: Annotated[int | None, flag("Vocabulary (51200).")] = None,
    dp: Annotated[int | None, flag("Data parallel replicas (1).")] = None,
    tp: Annotated[int | None, flag("Tensor parallel ranks (1).")] = None,
    pp: Annotated[int | None, flag("Pipeline ranks (1).")] = None,
    global_batch: Annotated[int | None, flag("Samples of one step over all replicas (1).")] = None,
    microbatch: Annotated[int | None, flag("Samples of one microbatch (1).")] = None,
    schedule: Annotated[str | None, flag("Pipeline schedule (1f1b; interleaved_1f1b with --virtual).")] = None,
    virtual: Annotated[int | None, flag("Stages per pipeline rank (1).")] = None,
    recompute: Annotated[str | None, flag("none, selective or full (none).")] = None,
    sequence_parallel: Annotated[bool | None, flag("Split activations along the sequence.")] = None,
    zero: Annotated[int | None, flag("ZeRO stage 0 to 3 (0).")] = None,
    offload: Annotated[bool | None, flag("Optimizer state in CPU memory.")] = None,
    overlap_dp: Annotated[bool | None, flag("Average gradients during the last backward (yes).")] = None,
    scatter_gather: Annotated[bool | None, flag("Cut pipeline messages over tp ranks (yes).")] = None,
    gradient_bytes: Annotated[int | None, flag("Bytes of a gradient element: 2 or 4 (2).")] = None,
    fused_accumulation: Annotated[bool | None, flag("Gradients add up inside their product.")] = None,
    dtype: Annotated[
        str | None, flag("Of the matrix products (bfloat16); memory stays that of mixed precision.")
    ] = None,
    cluster: Annotated[str, flag("A preset (an unknown name lists them) or a .json file (a100).")] = "a100",
    link: Annotated[list[str] | None, flag("Link of one axis: dp:eth10, tp:latency=5us,bandwidth=25GB/s.")] = None,
    cases: Annotated[Path | None, flag("A CSV of cases; predictions are written beside its columns.")] = None,
    out: Annotated[Path | None, flag("With --cases: the CSV to write. Else: the predicted trace, .parquet.")] = None,
    as_json: Annotated[bool, flag("Print one JSON object.", "--json")] = False,
) -> None:
    """Predict step time, TFLOP/s and memory of a GPT from its sizes, a plan and a cluster."""
    own = ("cluster", "link", "cases", "out", "as_json", "own")
    given = {name: value for name, value in locals().items() if value is not None and name not in own}
    with errors():
        check_out(out)
        machine = _cluster(cluster, link or [])
        if cases is not None:
            _predict_cases(cases, machine, given, out, as_json)
        else:
            _predict_one(machine, given, out, as_json)


def scorecard(
    facts: Annotated[Path, typer.Argument(help="Folder of the published tables as CSV.")] = Path("../shared/facts"),
    out: Annotated[Path | None, flag("Write the Markdown page here.")] = None,
    as_json: Annotated[bool, flag("Print one JSON object.", "--json")] = False,
) -> None:
    """Recompute every published table at hand: predicted, published, error."""
    with errors():
        from labkit import scorecard

        check_out(out)
        found, absent = scorecard.scores(facts), scorecard.missing_files(facts)
        text = json.dumps(scorecard.to_dict(found, absent)) if as_json else scorecard.markdown(found, absent)
        if out is None:
            print(text)
        else:
            out.write_text(text + "\n", encoding="utf-8")


def calibrate(
    out: Annotated[Path, flag("The cluster's JSON file to write.")] = Path("machine.json"),
    tables: Annotated[
        Path | None, flag("Instead, fit preset a100 again to the measured tables in this folder, and compare.")
    ] = None,
    as_json: Annotated[bool, flag("Print the cluster as JSON.", "--json")] = False,
) -> None:
    """Measure this machine's link, matrix products and memory, and write them as a cluster."""
    with errors():
        from labkit.cluster import save as save_cluster

        check_out(out)
        found, words = _fitted(tables) if tables else _measured()
        save_cluster(found, out)
        print(out.read_text(encoding="utf-8") if as_json else f"{words}\nsaved to {out}: use it as --cluster {out}")


def _measured() -> tuple[Cluster, str]:
    from labkit.calibrate import calibrate as measure

    found = measure()
    return found, str(found)


def _fitted(folder: Path) -> tuple[Cluster, str]:
    """Preset a100 fitted again, and its constants beside those of the preset."""
    from labkit.cluster import PRESETS
    from labkit.predict import fit

    found = fit.fit_preset(folder)
    pairs = zip(fit.CONSTANTS, fit.constants_of(PRESETS["a100"]), fit.constants_of(found), strict=True)
    lines = [f"  {name:20} {preset:10.4g} {fitted:10.4g}" for name, preset, fitted in pairs]
    return found, "\n".join([f"{'':22} {'preset':>10} {'fitted':>10}", *lines])


def _cluster(name: str, links: list[str]) -> Cluster:
    from dataclasses import replace

    from labkit.cluster import as_cluster
    from labkit.link import as_link

    pairs = [part.partition(":") for part in links]
    for axis, colon, _ in pairs:
        if not colon:
            raise ValueError(f"link {axis!r}: name the axis it is for, e.g. --link dp:eth10")
    found = as_cluster(name)
    return replace(found, axis_links={**found.axis_links, **{axis: as_link(spec) for axis, _, spec in pairs}})


def _predict_one(cluster: Cluster, given: dict[str, Any], out: Path | None, as_json: bool) -> None:
    from labkit.costs import Model, Training
    from labkit.predict import predict, predict_trace

    missing = [name for name in ("layers", "hidden", "heads") if name not in given]
    if missing:
        flags = ", ".join(f"--{name}" for name in missing)
        raise ValueError(f"the model's sizes are not all given: add {flags}, or give --cases FILE.csv")
    sizes = {name: given.pop(name) for name in _SIZES if name in given}
    training = Training(model=Model(**sizes), **given)
    found = predict(training, cluster)
    print(json.dumps(found.to_dict()) if as_json else _words(found))
    if out is not None:
        save(predict_trace(training, cluster), out, quiet=as_json)


def _predict_cases(path: Path, cluster: Cluster, given: dict[str, Any], out: Path | None, as_json: bool) -> None:
    from labkit.predict import predict_cases, read_cases, unused_columns

    cases = read_cases(path)
    unused = unused_columns(cases)
    table = predict_cases(cases, cluster, **given)
    if out is not None:
        table.write_csv(out)
    if as_json:
        print(
            json.dumps(
                {
                    "cluster": cluster.name,
                    "summary": _summary(table),
                    "unused_columns": unused,
                    "cases": table.to_dicts(),
                }
            )
        )
        return
    if unused:
        print(f"columns not used: {', '.join(unused)}", file=sys.stderr)
    if out is None:
        print(table.write_csv(), end="")
    else:
        print(f"{table.height} cases written to {out}")
        for column, error in _summary(table).items():
            print(f"  {column}: mean error {error['mean_percent']:.1f} %, worst {error['worst_percent']:.1f} %")


def _summary(table: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Mean and worst error of every measured column."""
    prefix = "error_percent "
    columns = [name for name in table.columns if name.startswith(prefix)]
    errors_of = {name.removeprefix(prefix): table[name].cast(float).drop_nulls().abs() for name in columns}
    return {
        name: {"rows": len(error), "mean_percent": float(error.mean()), "worst_percent": float(error.max())}
        for name, error in errors_of.items()
        if len(error)
    }


def _words(found: Prediction) -> str:
    from labkit.predict import memory_advice

    memory = found.memory
    lines = [
        f"{found.training}",
        f"  on {found.training.num_ranks} x {found.cluster.device.name} ({found.cluster.name})",
    ]
    lines += [f"  step {found.step_s * 1e3:.4g} ms (predicted)"]
    lines += [
        f"    {part:16} {'in pp_bubble':>13}"
        if part == "p2p" and found.messages_in_bubble
        else f"    {part:16} {time * 1e3:10.4g} ms  {time / found.step_s:6.1%}"
        for part, time in found.breakdown.items()
    ]
    lines += [
        f"  {found.hardware_tflops_per_gpu:.4g} TFLOP/s per GPU with recomputation ({found.hfu:.1%} of peak), "
        f"{found.model_tflops_per_gpu:.4g} without ({found.mfu:.1%})",
        f"  memory {memory.total_bytes / 1e9:.4g} GB on the fullest rank: "
        f"parameters {memory.param_bytes / 1e9:.3g}, gradients {memory.grad_bytes / 1e9:.3g}, "
        f"optimizer {memory.optimizer_bytes / 1e9:.3g}, activations {memory.activation_bytes / 1e9:.3g}",
        f"  {'fits' if found.fits else 'does not fit: ' + memory_advice(found.training, found.cluster)}",
    ]
    return "\n".join(lines)
