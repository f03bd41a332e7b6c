"""What a training step would take: computed from sizes, a plan and a cluster. Nothing is run.

In: costs.Training and a cluster.Cluster. Out: a `Prediction`, a predicted Trace, or a table with predictions in it.

    stage.py     one pipeline rank, one microbatch    syncs.py   messages, gradient sync, update
    pipeline.py  all ranks, all microbatches          step.py    step time and its parts
    advice.py    does it fit, and what would          drawn.py   the step as a Trace
    cases.py     a CSV of cases                       fit.py     where preset a100's constants come from
"""

from labkit.predict.advice import memory_advice
from labkit.predict.cases import predict_cases, read_cases, unused_columns
from labkit.predict.drawn import predict_trace
from labkit.predict.stage import StageTime, layer_time, stage_times
from labkit.predict.step import Prediction, predict

__all__ = [
    "Prediction",
    "StageTime",
    "layer_time",
    "memory_advice",
    "predict",
    "predict_cases",
    "predict_trace",
    "read_cases",
    "stage_times",
    "unused_columns",
]
