"""Why a rank stands still: every gap gets its cause and a sentence.

In: a Trace of any source. Out: tables, or text. The causes and how gaps are cut are `analysis.gaps`'; here they are
put in words, with the numbers and the rank that was waited for. All gaps of a rank together are its idle and exposed
sync time: nothing is left over, nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from labkit.analysis import CAUSES, Cause, breakdown, gaps, notes
from labkit.analysis.activity import WORK_KINDS
from labkit.analysis.stages import MORE_WORK
from labkit.event import STAGE_KINDS
from labkit.report import size_words
from labkit.trace import Trace

COLUMNS = ("rank", "step", "start_ns", "end_ns", "duration_ns", "cause", "sentence", "by_rank", "op", "axis",
           "size_bytes", "microbatch")  # fmt: skip


def explain(trace: Trace) -> pl.DataFrame:
    """A row for every piece of every gap: rank, step, start_ns, end_ns, duration_ns, cause, sentence, by_rank and more.

    The durations of a rank add up to the time in which it computed nothing (`analysis.breakdown`: idle_ns +
    exposed_sync_ns). A gap is cut where its cause changes, e.g. when the straggler arrives.
    """
    table = _with_neighbours(trace, _with_stage_work(trace, gaps(trace)))
    sentences = [_SENTENCES[Cause(row["cause"])](row | {"cores": trace.meta.num_cores}) for row in table.to_dicts()]
    table = table.with_columns(pl.Series("sentence", sentences, dtype=pl.String))
    return table.select(COLUMNS).sort("rank", "start_ns")


def summary(trace: Trace) -> pl.DataFrame:
    """For each rank and cause: rank, cause, duration_ns, percent (of the rank's window), num_gaps, longest_ns."""
    windows = breakdown(trace).select("rank", "window_ns")
    table = gaps(trace).group_by("rank", "cause").agg(
        pl.col("duration_ns").sum(),
        pl.len().cast(pl.Int64).alias("num_gaps"),
        pl.col("duration_ns").max().alias("longest_ns"),
    )  # fmt: skip
    percent = (100 * pl.col("duration_ns") / pl.col("window_ns")).alias("percent")
    table = table.join(windows, on="rank").with_columns(percent)
    columns = ("rank", "cause", "duration_ns", "percent", "num_gaps", "longest_ns")
    return table.select(columns).sort(["rank", "duration_ns"], descending=[False, True])


def describe(trace: Trace, *, longest: int = 3) -> str:
    """The summary of every rank, its longest gaps as sentences, what helps against each cause found, and caveats."""
    table, causes = explain(trace), summary(trace)
    lines = [f"why ranks stand still: {trace.title}"]
    for row in breakdown(trace).to_dicts():
        rank, idle_ns = row["rank"], row["idle_ns"] + row["exposed_sync_ns"]
        share = f" ({idle_ns / row['window_ns']:.1%})" if row["window_ns"] else ""
        lines.append(f"  rank {rank}: {time_words(idle_ns)} of {time_words(row['window_ns'])} without work{share}")
        of_rank = causes.filter(pl.col("rank") == rank).to_dicts()
        lines += [f"    {time_words(c['duration_ns']):>9}  {c['percent']:5.1f} %  {c['cause']}" for c in of_rank]
        worst = table.filter(pl.col("rank") == rank).top_k(longest, by="duration_ns").to_dicts()
        lines += [f"    - {_of_step(gap)}{gap['sentence']}" for gap in worst]
    found = causes["cause"].unique().to_list()
    lines += [f"  {cause}: {words}" for cause, words in CAUSES.items() if cause in found]
    lines += [f"  note: {note}" for note in dict.fromkeys((*trace.meta.notes, *notes(trace)))]
    return "\n".join(lines)


def _of_step(gap: dict[str, Any]) -> str:
    return f"step {gap['step']}: " if gap["step"] is not None else ""


def time_words(duration_ns: float) -> str:
    """1_234_567 -> "1.2 ms"."""
    for limit, unit, size in ((1e9, "s", 1e9), (1e6, "ms", 1e6), (1e3, "us", 1e3)):
        if duration_ns >= limit:
            return f"{duration_ns / size:.1f} {unit}" if unit != "s" else f"{duration_ns / size:.2f} s"
    return f"{duration_ns:.0f} ns"


# ---- what sentences tell beside the gap itself


def _with_stage_work(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """Stage work of the rank and of the rank it waited for, in that step (own_ns, their_ns)."""
    took = (pl.col("end_ns") - pl.col("start_ns")).sum()
    work = trace.of(*STAGE_KINDS).group_by("rank", "step").agg(took.alias("own_ns"))
    theirs = work.rename({"rank": "by_rank", "own_ns": "their_ns"})
    table = table.join(work, on=["rank", "step"], how="left", maintain_order="left")
    return table.join(theirs, on=["by_rank", "step"], how="left", maintain_order="left")


_LONGEST_NAME = 60
"""Letters of a layer's or kernel's name in a sentence."""


def _with_neighbours(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """What the rank did before and after the gap (`before`, `after`)."""
    kind = pl.col("kind").cast(pl.String)
    work = trace.events.filter(kind.is_in([*WORK_KINDS, "kernel"]))
    name = pl.col("layer").str.slice(0, _LONGEST_NAME)
    work = work.with_columns(pl.concat_str([kind.str.replace_all("_", " "), name], separator=" ", ignore_nulls=True))
    ended = work.sort("end_ns").select("rank", "end_ns", pl.col("kind").alias("before"))
    begun = work.sort("start_ns").select("rank", "start_ns", pl.col("kind").alias("after"))
    table = table.sort("start_ns").join_asof(
        ended, left_on="start_ns", right_on="end_ns", by="rank", strategy="backward", check_sortedness=False
    )  # fmt: skip
    return table.sort("end_ns").join_asof(
        begun, left_on="end_ns", right_on="start_ns", by="rank", strategy="forward", check_sortedness=False
    )  # fmt: skip


# ---- one sentence for each cause


def _warm_up(gap: dict[str, Any]) -> str:
    return f"{_waited(gap)} for {_data(gap)}: the pipeline is filling"


def _drain(gap: dict[str, Any]) -> str:
    if gap["op"] is None:
        return (
            f"{_stood_still(gap)} at the end of its step: rank {gap['by_rank']} was still at work, the pipeline drains"
        )
    return f"{_waited(gap)} for {_data(gap)}: the pipeline drains"


def _slow_stage(gap: dict[str, Any]) -> str:
    sentence = f"{_waited(gap)} for {_data(gap)}, not computed yet"
    if gap["own_ns"] and (gap["their_ns"] or 0) > MORE_WORK * gap["own_ns"]:
        own, theirs = time_words(gap["own_ns"]), time_words(gap["their_ns"])
        sentence += f"; in this step rank {gap['by_rank']} works {theirs}, rank {gap['rank']} {own}"
    return sentence


def _late_p2p(gap: dict[str, Any]) -> str:
    if not gap["is_sent"]:
        return f"{_waited(gap)} for {_data(gap)}, not computed yet: no rank works longer, earlier messages came late"
    return f"{_waited(gap)} for {_data(gap)}: both were ready,{_size(gap)} on the way"


def _straggler(gap: dict[str, Any]) -> str:
    if gap["op"] is None:
        return _ended_first(gap)
    return f"{_waited(gap)} in {_sync(gap)} for rank {gap['by_rank']}, which came last"


def _bandwidth(gap: dict[str, Any]) -> str:
    who = f"all {gap['num_ranks']} ranks had come" if (gap["num_ranks"] or 0) > 1 else "nobody else takes part"
    return f"{_waited(gap)} in {_sync(gap)}{_of_size(gap)}: {who}, the sync itself took this long"


def _partner(gap: dict[str, Any]) -> str:
    return (
        f"{_waited(gap)} in {_sync(gap)}{_of_size(gap)}: its other ranks are not in the trace, so nobody can be named"
    )


def _host(gap: dict[str, Any]) -> str:
    return f"{_stood_still(gap)}{_between(gap)}, waiting for nobody: host or launch overhead"


def _cores(gap: dict[str, Any]) -> str:
    return (
        f"{_stood_still(gap)}{_between(gap)}, mostly without a core: more ranks than the machine's {gap['cores']} cores"
    )


_SENTENCES: dict[Cause, Callable[[dict[str, Any]], str]] = {
    Cause.WARM_UP: _warm_up,
    Cause.DRAIN: _drain,
    Cause.SLOW_STAGE: _slow_stage,
    Cause.LATE_P2P: _late_p2p,
    Cause.STRAGGLER: _straggler,
    Cause.BANDWIDTH: _bandwidth,
    Cause.PARTNER: _partner,
    Cause.HOST: _host,
    Cause.CORES: _cores,
}


def _waited(gap: dict[str, Any]) -> str:
    return f"rank {gap['rank']} waited {time_words(gap['duration_ns'])}"


def _stood_still(gap: dict[str, Any]) -> str:
    return f"rank {gap['rank']} stood still for {time_words(gap['duration_ns'])}"


def _ended_first(gap: dict[str, Any]) -> str:
    return f"{_stood_still(gap)} at the end of its step: rank {gap['by_rank']} was still at work"


def _data(gap: dict[str, Any]) -> str:
    """ "microbatch 3 from rank 1", or, where it is the sender that waits, "rank 1 to take microbatch 3"."""
    what = f"microbatch {gap['microbatch']}" if gap["microbatch"] is not None else "data"
    peer = f"rank {gap['by_rank']}" if gap["by_rank"] is not None else "a rank that is not in the trace"
    return f"{peer} to take {what}" if gap["op"] == "send" else f"{what} from {peer}"


def _sync(gap: dict[str, Any]) -> str:
    return f"{gap['op'] or 'a sync'}{' (' + gap['axis'] + ')' if gap['axis'] else ''}"


def _size(gap: dict[str, Any]) -> str:
    return f" {size_words(gap['size_bytes'])}" if gap["size_bytes"] else ""


def _of_size(gap: dict[str, Any]) -> str:
    return f" of{_size(gap)}" if gap["size_bytes"] else ""


def _between(gap: dict[str, Any]) -> str:
    before, after = gap["before"], gap["after"]
    if before and after:
        return f" between {before} and {after}"
    return f" after {before}" if before else (f" before {after}" if after else "")
