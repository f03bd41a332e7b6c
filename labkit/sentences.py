"""One sentence for a gap: who stood still, for how long, for whom or for what.

In: a row of `analysis.gaps` with what `explain` tells beside it. Out: a sentence for each cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.analysis import Cause
from labkit.analysis.stages import MORE_WORK
from labkit.report import size_words

Gap = dict[str, Any]


def sentence(gap: Gap) -> str:
    """The gap in words.

    Beside the columns of `analysis.gaps` it tells `before` and `after` (the rank's work around it); stage work in this
    step: `own_ns`, `slowest_ns` and `slowest_rank`; `their_layer` and `their_layer_ns`, with which the rank that was
    waited for spent most of this time; and `cores`.
    """
    return _SENTENCES[Cause(gap["cause"])](gap)


def time_words(duration_ns: float) -> str:
    """1_234_567 -> "1.2 ms"."""
    for limit, unit, size in ((1e9, "s", 1e9), (1e6, "ms", 1e6), (1e3, "µs", 1e3)):
        if duration_ns >= limit:
            return f"{duration_ns / size:.1f} {unit}" if unit != "s" else f"{duration_ns / size:.2f} s"
    return f"{duration_ns:.0f} ns"


# ---- in a pipeline


def _warm_up(gap: Gap) -> str:
    return f"{_waited(gap)} for {_data(gap)}: the pipeline is filling"


def _drain(gap: Gap) -> str:
    if gap["op"] is None:
        return f"{_ended_first(gap)}, the pipeline drains"
    return f"{_waited(gap)} for {_data(gap)}: the pipeline drains"


def _slow_stage(gap: Gap) -> str:
    words = f"{_waited(gap)} for {_data(gap)}, {_busy(gap)}"
    if gap["own_ns"] and gap["slowest_rank"] != gap["rank"] and gap["slowest_ns"] > MORE_WORK * gap["own_ns"]:
        slowest, own = time_words(gap["slowest_ns"]), time_words(gap["own_ns"])
        words += f"; in this step rank {gap['slowest_rank']} works longest, {slowest}, rank {gap['rank']} {own}"
    return words


def _order(gap: Gap) -> str:
    return f"{_waited(gap)} for {_data(gap)}, {_busy(gap)}: no rank works longer in this step"


def _late_p2p(gap: Gap) -> str:
    if not gap["is_sent"]:
        return f"{_waited(gap)} for {_data(gap)}, {_busy(gap)}: no rank works longer, earlier messages came late"
    return f"{_waited(gap)} for {_data(gap)}: both were ready,{_size(gap)} on the way"


# ---- in a collective


def _straggler(gap: Gap) -> str:
    if gap["op"] is None:
        return _ended_first(gap)
    return f"{_waited(gap)} in {_sync(gap)} for rank {gap['by_rank']}, which came last{_because(gap)}"


_TELLING = 0.25
"""Share of a wait that one layer must have taken to be named as its reason."""


def _because(gap: Gap) -> str:
    spent_ns = gap["their_layer_ns"] or 0
    if spent_ns < _TELLING * gap["duration_ns"]:
        return ""
    return f": meanwhile it spent {time_words(spent_ns)} in {gap['their_layer']}"


def _bandwidth(gap: Gap) -> str:
    return f"{_waited(gap)} in {_sync(gap)}{_of_size(gap)}: {_all_came(gap)}, the sync itself took this long"


def _all_came(gap: Gap) -> str:
    num_ranks = gap["num_ranks"] or 0
    if num_ranks < 2:
        return "nobody else takes part"
    return "both ranks had come" if num_ranks == 2 else f"all {num_ranks} ranks had come"


def _partner(gap: Gap) -> str:
    return (
        f"{_waited(gap)} in {_sync(gap)}{_of_size(gap)}: its other ranks are not in the trace, so nobody can be named"
    )


# ---- by itself


def _host(gap: Gap) -> str:
    return f"{_stood_still(gap)}{_between(gap)}, waiting for nobody: host or launch overhead"


def _cores(gap: Gap) -> str:
    return (
        f"{_stood_still(gap)}{_between(gap)}, mostly without a core: more ranks than the machine's {gap['cores']} cores"
    )


_SENTENCES: dict[Cause, Callable[[Gap], str]] = {
    Cause.WARM_UP: _warm_up,
    Cause.DRAIN: _drain,
    Cause.SLOW_STAGE: _slow_stage,
    Cause.ORDER: _order,
    Cause.LATE_P2P: _late_p2p,
    Cause.STRAGGLER: _straggler,
    Cause.BANDWIDTH: _bandwidth,
    Cause.PARTNER: _partner,
    Cause.HOST: _host,
    Cause.CORES: _cores,
}


# ---- parts of a sentence


def _waited(gap: Gap) -> str:
    return f"rank {gap['rank']} waited {time_words(gap['duration_ns'])}"


def _stood_still(gap: Gap) -> str:
    return f"rank {gap['rank']} stood still for {time_words(gap['duration_ns'])}"


def _ended_first(gap: Gap) -> str:
    return f"{_stood_still(gap)} at the end of its step: rank {gap['by_rank']} was still at work"


def _data(gap: Gap) -> str:
    """ "microbatch 3 from rank 1", or, where it is the sender that waits, "rank 1 to take microbatch 3"."""
    what = f"microbatch {gap['microbatch']}" if gap["microbatch"] is not None else "data"
    peer = f"rank {gap['by_rank']}" if gap["by_rank"] is not None else "a rank that is not in the trace"
    return f"{peer} to take {what}" if gap["op"] == "send" else f"{what} from {peer}"


def _busy(gap: Gap) -> str:
    return "which was not there yet" if gap["op"] == "send" else "not computed yet"


def _sync(gap: Gap) -> str:
    return f"{gap['op'] or 'a sync'}{' (' + gap['axis'] + ')' if gap['axis'] else ''}"


def _size(gap: Gap) -> str:
    return f" {size_words(gap['size_bytes'])}" if gap["size_bytes"] else ""


def _of_size(gap: Gap) -> str:
    return f" of{_size(gap)}" if gap["size_bytes"] else ""


def _between(gap: Gap) -> str:
    before, after = gap["before"], gap["after"]
    if before and after:
        return f" between {before} and {after}"
    return f" after {before}" if before else (f" before {after}" if after else "")
