"""What a training step would take: computed from sizes, a plan and a cluster. Nothing is run.

In: costs.Training and a cluster.Cluster. Out: a `Prediction`, a predicted Trace, or a table with predictions in it.

    step.py    step time and its parts          drawn.py   the step as a Trace
    advice.py  does it fit, and what would      cases.py   a CSV of cases
"""

from labkit.predict.advice import memory_advice
from labkit.predict.cases import predict_cases, read_cases, unused_columns
from labkit.predict.drawn import predict_trace
from labkit.predict.step import Prediction, StageTime, layer_time, predict, stage_times

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
