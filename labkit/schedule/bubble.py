"""How much of the time is idle: slots in, one number out.

Two words for idle time are in use and must not be mixed:

    of total   idle / (ranks * makespan)    Qi et al. 2024, arXiv 2401.10241; 1F1B: (p-1)/(m+p-1)
    of ideal   (makespan - ideal) / ideal   Narayanan et al. 2021, arXiv 2104.04473, section 2.2; 1F1B: (p-1)/m

Qi et al. moreover count an iteration from one rank's first action to its own last one, and take the longest: with the
optimizer step no longer a barrier, the next iteration starts staggered. For ZB-H2 that is well below the makespan.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate

from labkit.schedule.clock import Durations, Slot, Slots
from labkit.schedule.registry import generate
from labkit.schedule.simulate import simulate


def bubble_fraction(slots: Iterable[Slot]) -> float:
    """Idle part of the total time: 1 - busy / (ranks * makespan). From 0 (no idle time) to below 1.

    The definition of Qi et al. 2024 (arXiv 2401.10241). For 1F1B and GPipe (p-1)/(m+p-1). 0 for no work at all.
    """
    busy, spans, makespan = _totals(slots)
    return 1 - busy / (len(spans) * makespan) if busy else 0.0


def bubble_of_ideal(slots: Iterable[Slot]) -> float:
    """Time lost, as a multiple of the ideal time: (makespan - ideal) / ideal, ideal = busy / ranks. May exceed 1.

    The definition of Narayanan et al. 2021 (arXiv 2104.04473, section 2.2). For 1F1B and GPipe (p-1)/m; with v
    interleaved stages per rank (p-1)/(v m). 0 for no work at all.
    """
    busy, spans, makespan = _totals(slots)
    return makespan * len(spans) / busy - 1 if busy else 0.0


def bubble_of_span(slots: Iterable[Slot]) -> float:
    """Idle part of the longest rank's own span, first start to last end: (span - ideal) / span, ideal = busy / ranks.

    The "bubble rate" of Qi et al. 2024 (arXiv 2401.10241), whose cost is the longest stage span and
    not the makespan. 0 for no work at all.
    """
    busy, spans, _ = _totals(slots)
    return 1 - busy / (len(spans) * max(spans)) if busy else 0.0


def _totals(slots: Iterable[Slot]) -> tuple[float, list[float], float]:
    """Busy time of all ranks together, each rank's first start to last end, and the makespan."""
    if isinstance(slots, Slots):
        return _totals_of_columns(slots)
    by_rank: dict[int, list[Slot]] = defaultdict(list)
    for slot in slots:
        by_rank[slot.rank].append(slot)
    busy = sum(slot.end - slot.start for own in by_rank.values() for slot in own)
    starts = [min(slot.start for slot in own) for own in by_rank.values()]
    ends = [max(slot.end for slot in own) for own in by_rank.values()]
    return busy, *_spans(starts, ends)


def _totals_of_columns(slots: Slots) -> tuple[float, list[float], float]:
    """The same without making a Slot: a rank's slots are in order of time, and follow those of the rank before."""
    lengths = [len(order) for order in slots.schedule.orders if order]
    after = list(accumulate(lengths))
    starts = [float(slots.starts[end - length]) for end, length in zip(after, lengths, strict=True)]
    ends = [float(slots.ends[end - 1]) for end in after]
    return float((slots.ends - slots.starts).sum()), *_spans(starts, ends)


def _spans(starts: list[float], ends: list[float]) -> tuple[list[float], float]:
    spans = [end - start for start, end in zip(starts, ends, strict=True)]
    return spans, max(ends, default=0.0) - min(starts, default=0.0)


def ideal_bubble(
    name: str, num_ranks: int, num_microbatches: int, virtual: int | None = None, durations: Durations | None = None
) -> float:
    """The idle part of the total time that a published schedule cannot avoid: messages free, all stages alike.

    `bubble_fraction` of the simulated schedule. `durations` default to forward = input half = weight half.
    Raises ScheduleError for a shape the schedule does not accept.
    """
    return bubble_fraction(simulate(generate(name, num_ranks, num_microbatches, virtual), durations or Durations()))
