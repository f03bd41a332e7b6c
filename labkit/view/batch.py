"""The images each microbatch was made of.

In: a `Trace` whose load events name their samples, and the data set's images. Out: one chart, a strip of thumbnails for
every microbatch. What is drawn are the samples the ranks really got, in the order they got them.
"""

import numpy as np
import polars as pl

from labkit.digits import SIDE, digits
from labkit.trace import Trace
from labkit.view.chart import Chart, blank_chart, say_instead
from labkit.view.theme import Theme

MAX_STRIPS = 16
MAX_THUMBNAILS = 24


def batch_figure(trace: Trace, images: np.ndarray | None = None, *, step: int = 0, theme: Theme = "light") -> Chart:
    """Strips of thumbnails of one step. `images`: (samples, height, width); default: the digits, if it saw those."""
    figure = blank_chart(f"Images of step {step}", trace, theme)
    loads = microbatch_samples(trace, step)
    if not loads:
        return say_instead(figure, f"No load event of step {step} names its samples.")
    images = pictures_of(trace) if images is None else images
    if images is None:
        return say_instead(figure, "The samples of this task have no pictures: pass them as `images`.")
    mosaic, labels = _mosaic(loads[:MAX_STRIPS], images)
    height = images.shape[1] + 1
    figure.add_heatmap(z=mosaic, colorscale="Greys", showscale=False, hoverinfo="skip", xgap=0, ygap=0)
    middles = [k * height + (height - 2) / 2 for k in range(len(labels))]
    figure.update_yaxes(autorange="reversed", tickvals=middles, ticktext=labels, showgrid=False, zeroline=False)
    figure.update_xaxes(visible=False)
    figure.update_layout(height=110 + 38 * len(labels), yaxis_scaleanchor="x", xaxis_constrain="domain")
    return figure


def microbatch_samples(trace: Trace, step: int) -> list[tuple[str, list[int]]]:
    """("rank 0 · microbatch 1", dataset indices) for every load of a step, each microbatch of a replica once.

    Ranks of one replica load the same samples; the lowest rank stands for all.
    """
    mesh = trace.meta.mesh
    loads = trace.of("load").filter((pl.col("step") == step) & (pl.col("samples").list.len() > 0))
    seen: dict[tuple[int, int], tuple[str, list[int]]] = {}
    for load in loads.sort("rank", "microbatch", "start_ns").iter_rows(named=True):
        replica = mesh.coordinate(load["rank"])["dp"] if load["rank"] < mesh.num_ranks else load["rank"]
        microbatch = load["microbatch"] or 0
        label = f"rank {load['rank']} · microbatch {microbatch}"
        seen.setdefault((replica, microbatch), (label, load["samples"]))
    return [seen[key] for key in sorted(seen)]


def _mosaic(loads: list[tuple[str, list[int]]], images: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """One picture of all strips, a pixel of nothing between thumbnails, and the strips' labels."""
    num_columns = min(MAX_THUMBNAILS, max(len(samples) for _, samples in loads))
    height, width = images.shape[1] + 1, images.shape[2] + 1
    mosaic = np.full((len(loads) * height - 1, num_columns * width - 1), np.nan)
    for row, (_, samples) in enumerate(loads):
        for column, sample in enumerate(samples[:num_columns]):
            top, left = row * height, column * width
            mosaic[top : top + height - 1, left : left + width - 1] = images[sample]
    return mosaic, [label for label, _ in loads]


def pictures_of(trace: Trace) -> np.ndarray | None:
    """The images that the trace's samples are indices of, (1797, 8, 8); None unless it trained on the digits."""
    if not str((trace.meta.plan or {}).get("task", "")).startswith("digits"):
        return None
    return digits()[0].reshape(-1, SIDE, SIDE)
