"""The causes of a gap: why a rank computes nothing. Words only."""

from enum import StrEnum


class Cause(StrEnum):
    """Why a rank stood still. Every moment of a gap has exactly one."""

    WARM_UP = "pipeline warm-up"  # its first forward or backward has not reached it yet: the pipeline fills
    DRAIN = "drain"  # no forward is left: it waits for backwards, or for the other ranks to end
    SLOW_STAGE = "waiting for a slow stage"  # in the steady part: data not computed yet, others work longer
    ORDER = "waiting in the order of work"  # in the steady part: data not computed yet, though nobody works longer
    LATE_P2P = "late p2p"  # the data is on its way, or not computed yet as earlier messages were late
    STRAGGLER = "straggler"  # a rank has not come to the collective yet
    BANDWIDTH = "bandwidth-bound sync"  # all ranks have come: the sync itself takes this long
    PARTNER = "partner not recorded"  # the sync's other ranks are not in the trace
    HOST = "host/launch overhead"  # between two pieces of work, waiting for nobody
    CORES = "more ranks than cores"  # the same, while the rank mostly had no core to run on


CAUSES = {
    Cause.WARM_UP: "first forward or backward has not reached the rank yet: more microbatches make this share smaller",
    Cause.DRAIN: "no forward left: the last backwards travel back: more microbatches make this share smaller",
    Cause.SLOW_STAGE: "a neighbour in the pipeline computes longer: balance the stages",
    Cause.ORDER: "the schedule leaves a hole here, or one microbatch took longer: another schedule may fill it",
    Cause.LATE_P2P: "data of a neighbour is on its way: a faster link, or sending earlier, helps",
    Cause.STRAGGLER: "another rank came later to the sync: make its work equal",
    Cause.BANDWIDTH: "all ranks are there and the sync takes its time: fewer bytes, a faster link, or overlap",
    Cause.PARTNER: "the other ranks of the sync are not in the trace: give their files too",
    Cause.HOST: "Python, launching and bookkeeping between two pieces of work",
    Cause.CORES: "ranks take turns on too few cores: use fewer ranks, or a paced run",
}
"""Each cause in words, and what helps."""
