"""A run's numbers in words, for cards and tables."""

from __future__ import annotations

from labkit.comparison import Numbers, numbers
from labkit.report import size_words
from labkit.sentences import time_words
from labkit.trace import Trace


def facts(trace: Trace) -> dict[str, str]:
    """A run in words and numbers; what its trace cannot say is left out."""
    return {name: words for name, words in told(numbers(trace)).items() if words}


def told(found: Numbers) -> dict[str, str]:
    """Numbers in words; empty where there is none."""
    return {
        "step": time_words(found.step_ns) if found.step_ns else "",
        "samples per second": f"{found.samples_per_s:,.4g}" if found.samples_per_s else "",
        "ranks at work": f"{found.working:.1%}" if found.working is not None else "",
        "bubble": f"{found.bubble:.1%}" if found.bubble is not None else "",
        "blocked per step": time_words(found.exposed_sync_ns) if found.exposed_sync_ns else "",
        **{f"{axis} sync per step": size_words(size) for axis, size in found.sync_bytes.items()},
        "most memory held": size_words(found.memory_peak_bytes) if found.memory_peak_bytes else "",
    }
