"""The plans of our own runs: pairs of a captured plan and the one it is turned into, and what is run for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.plan import Plan
from labkit.replay import same_plan

LINK = "latency=2ms,bandwidth=10MB/s"
PIPELINE = Plan(
    pp=4, layers=8, microbatches=8, global_batch=96, steps=4, link=LINK,
    pace="forward=20ms,backward=40ms,optimizer=5ms",
)  # fmt: skip
REPLICAS = Plan(dp=2, layers=8, width=128, global_batch=96, steps=4, link=LINK, pace="forward=60ms,backward=120ms")

CAPTURED = {"pipeline of 4": PIPELINE, "2 replicas": REPLICAS}
"""Plans that are captured and taught from, by what they are called in tables. Both paced."""

_SLOW_TENSOR = {"pace": "forward=60ms,backward=120ms", "steps": 6}
"""DTensor's first two steps are slow, and it needs longer operations to keep pace."""

_FROM_PIPELINE: list[dict[str, Any]] = [
    {"pp": 2},
    {"microbatches": 4},
    {"microbatches": 12},
    {"microbatches": 16},
    {"schedule": "gpipe"},
    {"schedule": "gpipe", "microbatches": 4},
    {"schedule": "looped_bfs"},
    {"schedule": "interleaved_1f1b"},
    {"schedule": "interleaved_zb"},
    {"schedule": "zbv"},
    {"schedule": "dualpipev"},
    {"schedule": "zb_h1"},
    {"schedule": "zb_h2"},
    {"pp": 2, "order": "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3"},
    {"pp": 2, "schedule": "zbv", "microbatches": 4},
    {"pp": 2, "schedule": "interleaved_1f1b", "virtual": 4},
    {"pp": 2, "dp": 2},
    {"pp": 2, "dp": 2, "schedule": "gpipe", "microbatches": 4},
    {"pp": 2, "tp": 2, "microbatches": 4, **_SLOW_TENSOR},
    {"link": "latency=20ms,bandwidth=1MB/s"},
    {"link": "latency=200us,bandwidth=1GB/s"},
    {"link": "latency=5ms,bandwidth=200kB/s", "microbatches": 4},
    {"pp": 2, "dp": 2, "link": {"dp": "latency=1ms,bandwidth=500kB/s", "pp": "latency=10ms,bandwidth=10MB/s"}},
    {"pp": 1, "dp": 4, "microbatches": 2},
    {"pp": 1, "dp": 2, "microbatches": 4},
]
_FROM_REPLICAS: list[dict[str, Any]] = [
    {"dp": 4},
    {"link": "latency=1ms,bandwidth=1MB/s"},
    {"link": "latency=1ms,bandwidth=1MB/s", "bucket_mb": 0.1},
    {"dp": 4, "link": "latency=10ms,bandwidth=2MB/s", "bucket_mb": 0.2},
    {"microbatches": 3},
    {"dp": 1, "tp": 2, "steps": 6},
    {"tp": 2, "steps": 6},
    {"dp": 1, "pp": 2, "microbatches": 4},
    {"dp": 1, "pp": 4, "microbatches": 6, "schedule": "zbv"},
]


@dataclass(frozen=True)
class Pair:
    """A captured plan, by its name, and what is changed in it."""

    captured: str
    changes: Mapping[str, Any]

    @property
    def old(self) -> Plan:
        return CAPTURED[self.captured]

    @property
    def new(self) -> Plan:
        return same_plan(self.old, **self.changes)

    def __str__(self) -> str:
        """ "pipeline of 4 → pp 2, dp 2": what a reader sees; the number of steps changes nothing."""
        shown = {name: value for name, value in self.changes.items() if name != "steps"}
        return f"{self.captured} → {', '.join(_words(name, value) for name, value in shown.items())}"


def _words(name: str, value: Any) -> str:
    if name == "order":
        return "an order of one's own"
    if isinstance(value, Mapping):
        return ", ".join(f"{axis} {name} {spec}" for axis, spec in value.items())
    return f"{name} {value}"


PAIRS = tuple(
    Pair(name, changes)
    for name, group in (("pipeline of 4", _FROM_PIPELINE), ("2 replicas", _FROM_REPLICAS))
    for changes in group
)

REPLAYED = {
    "pipeline of 4, paced": PIPELINE,
    "2 x 2 pipeline and data, paced": same_plan(PIPELINE, pp=2, dp=2, microbatches=4),
    "2 replicas, paced": REPLICAS,
    "pipeline of 2, unpaced": Plan(pp=2, layers=4, microbatches=4, global_batch=256, width=256, steps=6),
    "one rank, unpaced": Plan(layers=4, microbatches=4, global_batch=256, width=256, steps=6),
}
"""Runs that are replayed as they were. Unpaced ones also by device time: by the CPU time of their work."""

REMEMBERED = {
    "digits, one rank": Plan(optimizer="adam"),
    "digits, dp 2, ZeRO 1": Plan(dp=2, zero=1, optimizer="adam"),
    "digits, dp 2, ZeRO 2": Plan(dp=2, zero=2, optimizer="adam"),
    "digits, dp 2, ZeRO 3": Plan(dp=2, zero=3, optimizer="adam"),
    "digits, tp 2": Plan(tp=2, optimizer="adam"),
    "digits, pp 4, 1F1B": Plan(pp=4, layers=8, microbatches=8, optimizer="adam"),
    "digits, pp 4, GPipe": Plan(pp=4, layers=8, microbatches=8, schedule="gpipe", optimizer="adam"),
    "digits, pp 2, ZBV": Plan(pp=2, layers=8, microbatches=4, schedule="zbv", optimizer="adam"),
    "digits, recomputed": Plan(layers=8, recompute=True, optimizer="adam"),
    "CNN, dp 2": Plan(task="digits_cnn", dp=2, width=16, optimizer="adam"),
    "GPT, dp 2": Plan(task="chars", dp=2, global_batch=8, optimizer="adam"),
    "GPT, tp 2 with sequence parallelism": Plan(
        task="chars", tp=2, sequence_parallel=True, global_batch=8, optimizer="adam"
    ),
    "GPT, pp 2": Plan(task="chars", pp=2, microbatches=4, global_batch=8, optimizer="adam"),
}
"""Runs whose most bytes of each kind are predicted."""
