"""The batch flow: the very samples of one step fly to the replicas and microbatches that got them; gradients come back.

In: a `Trace` whose load events name their samples, and the data set's images. Out: a `BatchFlow` widget;
`static/batch_flow.js` draws it. Three acts: the samples are dealt out, microbatches are worked on at their real times,
replicas average their gradients.
"""

from typing import Any

import numpy as np
import polars as pl
import traitlets

from labkit.event import STAGE_KINDS
from labkit.trace import Trace
from labkit.view.batch import pictures_of
from labkit.view.esm import stylesheet, widget_module
from labkit.view.player import Player

MAX_SAMPLES = 1024
"""Thumbnails of one step; of a larger batch each microbatch shows its first ones."""

NO_PICTURE = (8, 14)
"""Height and width of what stands for a sample without a picture: room for its number."""

MAX_WORK = 4000
SUMMING = ("all_reduce", "reduce_scatter", "reduce")
HOW = "Load events name their samples when the Plan's `record` holds 'compute', as it does by default."


class BatchFlow(Player):
    """Thumbnails that fly, microbatches that are worked on, gradients that are averaged."""

    _esm = widget_module("batch_flow")
    _css = stylesheet("player", "scene")

    columns = traitlets.Dict().tag(sync=True)  # images: one byte a pixel; samples: the dataset index of each image
    image_size = traitlets.List().tag(sync=True)  # [height, width]
    step = traitlets.Int(None, allow_none=True).tag(sync=True)
    replicas = traitlets.List().tag(sync=True)
    pieces = traitlets.List().tag(sync=True)
    work = traitlets.List().tag(sync=True)
    average = traitlets.Dict().tag(sync=True)
    missing = traitlets.Unicode().tag(sync=True)


def batch_flow(
    trace: Trace, images: np.ndarray | None = None, *, step: int | None = None, title: str | None = None
) -> BatchFlow:
    """A player of one step; default: the first that loads.

    `images`: (samples, height, width); default: the digits, if it trained on them. Samples without show their number.
    """
    frame = trace.events.with_row_index("row").with_columns(pl.col("kind").cast(pl.String))
    loads = frame.filter((pl.col("kind") == "load") & (pl.col("samples").list.len() > 0))
    steps = loads["step"].drop_nulls().unique().sort().to_list()
    heading = trace.title.rpartition(" (")[0] if title is None else title
    if step is not None and step not in steps:
        raise ValueError(f"step {step} loads no samples in this trace: steps that do are {steps or 'none'}")
    if not steps:
        return BatchFlow(trace.meta, heading=heading, missing=f"No load event of this trace names its samples. {HOW}")
    step = steps[0] if step is None else step
    pieces = pieces_of(trace, loads.filter(pl.col("step") == step))
    of_step = frame.filter(pl.col("step") == step)
    images = pictures_of(trace) if images is None else images
    images = np.zeros((0, *NO_PICTURE)) if images is None else images
    return BatchFlow(
        trace.meta,
        heading=heading,
        step=step,
        pieces=pieces,
        replicas=_replicas(trace, pieces),
        work=_work(trace, of_step),
        average=_average(trace, of_step),
        image_size=list(images.shape[1:]),
        columns=_thumbnails(pieces, images),
    )


def pieces_of(trace: Trace, loads: pl.DataFrame) -> list[dict[str, Any]]:
    """Every microbatch of every replica once, by replica and number: its samples, when and where they were loaded.

    Ranks of one replica load the same samples; the lowest rank stands for all.
    """
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for load in loads.sort("rank", "microbatch", "start_ns").iter_rows(named=True):
        key = (_replica(trace, load["rank"]), load["microbatch"] or 0)
        piece = dict(replica=key[0], microbatch=key[1], rank=load["rank"], samples=load["samples"], row=load["row"])
        found.setdefault(key, piece | {"start_ns": load["start_ns"], "end_ns": load["end_ns"], "rows": []})
        found[key]["rows"].append(load["row"])
    pieces = [found[key] for key in sorted(found)]
    most = max(1, MAX_SAMPLES // len(pieces)) if pieces else 1
    return [piece | {"num_samples": len(piece["samples"]), "samples": piece["samples"][:most]} for piece in pieces]


def _replica(trace: Trace, rank: int) -> int:
    mesh = trace.meta.mesh
    return mesh.coordinate(rank)["dp"] if rank < mesh.num_ranks else rank


def _replicas(trace: Trace, pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    mesh = trace.meta.mesh
    ranks = {piece["replica"]: [piece["rank"]] for piece in pieces}
    for rank in range(mesh.num_ranks):
        if _replica(trace, rank) in ranks:
            ranks[_replica(trace, rank)].append(rank)
    return [{"replica": replica, "ranks": sorted(set(found))} for replica, found in sorted(ranks.items())]


def _work(trace: Trace, events: pl.DataFrame) -> list[dict[str, Any]]:
    """What stages did with the microbatches; of ranks that share a tensor's parts the first stands for all."""
    work = events.filter(pl.col("kind").is_in([str(kind) for kind in STAGE_KINDS]) & pl.col("microbatch").is_not_null())
    mesh, rows = trace.meta.mesh, []
    for one in work.sort("start_ns", maintain_order=True).iter_rows(named=True):
        if one["rank"] < mesh.num_ranks and mesh.coordinate(one["rank"])["tp"] > 0:
            continue
        names = ("rank", "microbatch", "stage", "start_ns", "end_ns", "row")
        kind = one["kind"].removeprefix("stage_")
        rows.append({name: one[name] for name in names} | {"kind": kind, "replica": _replica(trace, one["rank"])})
    return rows[:MAX_WORK]


def _average(trace: Trace, events: pl.DataFrame) -> dict[str, Any]:
    """How the replicas averaged: operations, bytes, times; empty where they did not. And one gradient's numbers."""
    axis = pl.col("axis").fill_null("").str.split("+").list.contains("dp")
    syncs = events.filter((pl.col("kind") == "sync") & axis)
    summing = syncs.filter(pl.col("op").is_in(SUMMING))
    syncs = summing if summing.height else syncs.filter(pl.col("op") == "send")
    if syncs.is_empty():
        return {}
    per_rank = syncs.group_by("rank").agg(pl.len().alias("num"), pl.col("size_bytes").sum().alias("bytes"))
    return {
        "ops": sorted(syncs["op"].unique()),
        "num": int(per_rank["num"].max()),
        "size_bytes": int(per_rank["bytes"].max() or 0),
        "start_ns": int(syncs["start_ns"].min()),
        "end_ns": int(syncs["end_ns"].max()),
        "rows": syncs["row"].to_list()[:MAX_WORK],
        "numbers": _gradient_numbers(trace, events),
    }


def _gradient_numbers(trace: Trace, events: pl.DataFrame) -> dict[str, Any] | None:
    """One weight's gradient on every replica before averaging and after, where values were kept and the mean agrees."""
    values = events.filter((pl.col("kind") == "value") & pl.col("op").is_in(["grad_local", "grad"]))
    for name in values["layer"].drop_nulls().unique(maintain_order=True):
        of_name = values.filter(pl.col("layer") == name)
        local, averaged = _by_replica(trace, of_name, "grad_local"), _by_replica(trace, of_name, "grad")
        shapes = {value.shape for value in [*local.values(), *averaged.values()]}
        if len(local) < 2 or set(local) != set(averaged) or len(shapes) != 1:
            continue
        after = averaged[min(averaged)]
        if not np.allclose(np.mean(list(local.values()), axis=0), after, rtol=1e-3, atol=1e-6 * np.abs(after).max()):
            continue
        at = int(np.abs(after).argmax())
        return {
            "name": name,
            "local": [float(local[key].flat[at]) for key in sorted(local)],
            "after": float(after.flat[at]),
        }
    return None


def _by_replica(trace: Trace, values: pl.DataFrame, op: str) -> dict[int, np.ndarray]:
    """A gradient of every replica, its microbatches added up; from the first rank that holds it."""
    found: dict[int, tuple[int, np.ndarray]] = {}
    for one in values.filter(pl.col("op") == op).sort("rank").iter_rows(named=True):
        replica, value = _replica(trace, one["rank"]), np.frombuffer(one["data"], one["dtype"]).astype(np.float64)
        rank, total = found.get(replica, (one["rank"], np.zeros_like(value)))
        if rank == one["rank"] and total.shape == value.shape:
            found[replica] = (rank, total + value)
    return {replica: value for replica, (_, value) in found.items()}


def _thumbnails(pieces: list[dict[str, Any]], images: np.ndarray) -> dict[str, bytes]:
    """The images of all samples, each once, as bytes from 0 to 255, and whose they are. Samples without image: none."""
    samples = sorted({sample for piece in pieces for sample in piece["samples"] if 0 <= sample < len(images)})
    chosen = np.asarray(images, float)[samples] if samples else np.zeros((0, *images.shape[1:]))
    low, high = (chosen.min(), chosen.max()) if chosen.size else (0, 1)
    scaled = np.round(255 * (chosen - low) / max(high - low, 1e-12)).astype("u1")
    return {"images": scaled.tobytes(), "samples": np.array(samples, "<i4").tobytes()}
