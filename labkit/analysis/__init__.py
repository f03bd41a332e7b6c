"""Questions about a trace, each answered by a number or a table. Pure: no process, no torch.

In: a Trace of any source. Out: numbers, or polars tables. One question a file:

    breakdown   where each rank's time went                totals      how many events, syncs and bytes
    pipeline    the bubble                                 matching    which syncs belong together, who came last
    gaps        why a rank stood still                     bandwidth   how fast syncs were
    path        what determined the end of a step          memory      what each rank held
    caveats     what a reader must know first
"""

from labkit.analysis.bandwidth import bandwidth
from labkit.analysis.breakdown import breakdown, overlap_percent, temporal_breakdown
from labkit.analysis.cause import CAUSES, Cause
from labkit.analysis.caveats import notes
from labkit.analysis.gaps import gaps
from labkit.analysis.matching import collectives, messages, stragglers, unmatched_syncs
from labkit.analysis.memory import memory_lanes, memory_peaks
from labkit.analysis.path import critical_path
from labkit.analysis.pipeline import Bubble, bubble
from labkit.analysis.totals import counts, sync_totals, syncs_per_step

__all__ = [
    "CAUSES",
    "Bubble",
    "Cause",
    "bandwidth",
    "breakdown",
    "bubble",
    "collectives",
    "counts",
    "critical_path",
    "gaps",
    "memory_lanes",
    "memory_peaks",
    "messages",
    "notes",
    "overlap_percent",
    "stragglers",
    "sync_totals",
    "syncs_per_step",
    "temporal_breakdown",
    "unmatched_syncs",
]
