"""Questions about a trace, each answered by a number or a table. Pure: no process, no torch.

In: a Trace of any source. Out: numbers, or polars tables. One question a file:

    breakdown   where each rank's time went                totals      how many events, syncs and bytes
    pipeline    the bubble                                 matching    which syncs belong together, who came last
    gaps        why a rank stood still                     bandwidth   how fast syncs were
    path        what determined the end of a step          memory      what each rank held
    caveats     what a reader must know first              steps       when a step of a rank begins and ends
    perceptron  the digits network in numpy                learning    how it got better, update by update
    landscape   the loss around a run                      gradient_noise   of small batches
"""

from labkit.analysis.bandwidth import bandwidth
from labkit.analysis.breakdown import breakdown, overlap_percent, temporal_breakdown
from labkit.analysis.cause import CAUSES, Cause
from labkit.analysis.caveats import all_notes, notes
from labkit.analysis.gaps import gaps
from labkit.analysis.ideal import ideal_bubble
from labkit.analysis.in_flight import microbatches_held
from labkit.analysis.matching import collectives, messages, stragglers, unmatched_syncs
from labkit.analysis.memory import memory_lanes, memory_peaks, most_held
from labkit.analysis.operations import operation_totals, operations_per_step
from labkit.analysis.path import critical_path
from labkit.analysis.pipeline import Bubble, bubble
from labkit.analysis.totals import counts, sync_totals, syncs_per_step

__all__ = [
    "CAUSES",
    "Bubble",
    "Cause",
    "all_notes",
    "bandwidth",
    "breakdown",
    "bubble",
    "collectives",
    "counts",
    "critical_path",
    "gaps",
    "ideal_bubble",
    "memory_lanes",
    "memory_peaks",
    "messages",
    "microbatches_held",
    "most_held",
    "notes",
    "operation_totals",
    "operations_per_step",
    "overlap_percent",
    "stragglers",
    "sync_totals",
    "syncs_per_step",
    "temporal_breakdown",
    "unmatched_syncs",
]
