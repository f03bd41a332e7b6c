"""How a digits network got better, update by update.

In: a `Trace` whose weights were captured. Out: a table. Right and wrong are counted over all images, which are also the
ones it trained on: this tells how fast it learns, not how well it would do on others.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from labkit.analysis.loss_times import loss_times_ns
from labkit.analysis.perceptron import accuracy, mean_loss, perceptrons
from labkit.digits import digits
from labkit.trace import Trace


@threadpool_limits.wrap(limits=1)  # as in `landscape`
def learning(trace: Trace) -> pl.DataFrame:
    """A row for every update that a later forward saw: update from 1, images seen, time_ns, loss, accuracy.

    time_ns counts from the start of the first step and is null where steps were not recorded. Raises ValueError
    without weights.
    """
    images, labels = digits()
    images, batch = images.astype(np.float64), int((trace.meta.plan or {}).get("global_batch", 0))
    networks = perceptrons(trace)[1:]
    ends = loss_times_ns(trace)[: len(networks)] or [None] * len(networks)
    return pl.DataFrame(
        {
            "update": range(1, len(networks) + 1),
            "images": range(batch, batch * len(networks) + 1, batch),
            "time_ns": ends,
            "loss": [mean_loss(network, images, labels) for network in networks],
            "accuracy": [accuracy(network, images, labels) for network in networks],
        },
        schema={
            "update": pl.Int64,
            "images": pl.Int64,
            "time_ns": pl.Int64,
            "loss": pl.Float64,
            "accuracy": pl.Float64,
        },
    )
