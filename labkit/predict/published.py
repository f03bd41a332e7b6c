"""Published runs of large models, to set predictions beside.

In: nothing. Out: tables of cases for `predict_cases`, each with the column that was measured.
"""

from __future__ import annotations

import polars as pl

NARAYANAN_2021 = (
    # heads, hidden, layers, tp, pp, gpus, global_batch, microbatch, virtual, DDP, TFLOP/s per GPU
    (24, 2304, 24, 1, 1, 32, 512, 16, 1, "torch", 137),
    (32, 4096, 36, 4, 1, 128, 512, 16, 1, "torch", 142),
    (64, 8192, 48, 8, 2, 512, 1536, 4, 1, "local", 138),
    (96, 12288, 80, 8, 8, 1536, 2304, 2, 2, "local", 148),
    (128, 20480, 105, 8, 35, 2520, 2520, 1, 3, "local", 163),
)
"""Every other row of Narayanan et al. 2021 (arXiv 2104.04473), Table 1: GPTs of 1.7 to 530 B parameters on A100 nodes
of eight. Microbatch, stages per rank and the kind of DDP are from the scripts published with the paper."""


def narayanan_2021() -> pl.DataFrame:
    """Columns as `read_cases` gives them; all runs recomputed activations. `tflops_per_gpu` is what was measured."""
    columns = ["heads", "hidden", "layers", "tp", "pp", "gpus", "global_batch", "microbatch", "virtual"]
    schema = [*columns, "ddp_impl_sc21_script", "tflops_per_gpu"]
    table = pl.DataFrame(NARAYANAN_2021, schema=schema, orient="row")
    return table.with_columns(pl.lit("full").alias("recompute"))
