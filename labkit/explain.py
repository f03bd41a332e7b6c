"""Why a rank stands still: every gap gets its cause and a sentence.

In: a Trace of any source. Out: tables, or text. The causes and how gaps are cut are `analysis.gaps`'; here they are
put in words (`sentences`), with the numbers and the rank that was waited for. All gaps of a rank together are its idle
and exposed sync time: nothing is left over, nothing counts twice.
"""

from __future__ import annotations

import polars as pl

from labkit.analysis import CAUSES, Cause, all_notes, breakdown, gaps
from labkit.analysis.activity import WORK_KINDS
from labkit.analysis.steps import pipeline_of
from labkit.event import LAYER_KINDS, STAGE_KINDS, Kind
from labkit.sentences import sentence, time_words
from labkit.trace import Trace

COLUMNS = ("rank", "step", "start_ns", "end_ns", "duration_ns", "cause", "sentence", "by_rank", "op", "axis",
           "size_bytes", "microbatch")  # fmt: skip


def explain(trace: Trace) -> pl.DataFrame:
    """A row for every piece of every gap: rank, step, start_ns, end_ns, duration_ns, cause, sentence, by_rank and more.

    The durations of a rank add up to the time in which it computed nothing (`analysis.breakdown`: idle_ns +
    exposed_sync_ns). A gap is cut where its cause changes, e.g. when the straggler arrives.
    """
    table = _with_neighbours(trace, _with_their_layer(trace, _with_stage_work(trace, gaps(trace))))
    sentences = [sentence(row | {"cores": trace.meta.num_cores}) for row in table.to_dicts()]
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


# ---- as text


def describe(trace: Trace, *, longest: int = 3) -> str:
    """The summary of every rank, its longest waits as sentences, what helps against each cause found, and caveats."""
    table, causes = explain(trace), summary(trace)
    lines = [f"why ranks stand still: {trace.title}"]
    rows = breakdown(trace).to_dicts()
    for row in rows:
        rank, still_ns = row["rank"], row["idle_ns"] + row["exposed_sync_ns"]
        share = f" ({still_ns / row['window_ns']:.1%})" if row["window_ns"] else ""
        lines.append(f"  rank {rank}: {time_words(still_ns)} of {time_words(row['window_ns'])} without work{share}")
        of_rank = causes.filter(pl.col("rank") == rank).to_dicts()
        lines += [f"    {time_words(c['duration_ns']):>9}  {c['percent']:5.1f} %  {c['cause']}" for c in of_rank]
        lines += [f"    - {words}" for words in _longest(table.filter(pl.col("rank") == rank), longest)]
    found = causes["cause"].unique().to_list()
    lines += [f"  {cause}: {words}" for cause, words in CAUSES.items() if cause in found]
    lines += [] if rows else ["  the trace holds no event, so there is nothing to explain"]
    lines += [f"  note: {note}" for note in all_notes(trace)]
    return "\n".join(lines)


_WORTH_TELLING = 0.01
"""Share of a rank's time without work that a kind of wait must take to get a sentence."""


def _longest(gaps_of_rank: pl.DataFrame, num: int) -> list[str]:
    """The longest of each kind of wait, those first that take most in all."""
    for_whom = pl.when(pl.col("cause") != str(Cause.BANDWIDTH)).then("by_rank").alias("for_whom")
    alike = gaps_of_rank.group_by("cause", for_whom, "op", "axis").agg(
        pl.col("sentence", "step").sort_by("duration_ns", "start_ns", descending=[True, False]).first(),
        pl.col("duration_ns").sum(),
        pl.col("start_ns").min(),
        pl.len().alias("num"),
    )  # fmt: skip
    alike = alike.filter(pl.col("duration_ns") >= _WORTH_TELLING * pl.col("duration_ns").sum())
    rows = alike.sort(["duration_ns", "start_ns"], descending=[True, False]).head(num).to_dicts()
    return [
        (f"step {row['step']}: " if row["step"] is not None else "")
        + row["sentence"]
        + (f" (and {row['num'] - 1} like it, {time_words(row['duration_ns'])} in all)" if row["num"] > 1 else "")
        for row in rows
    ]


# ---- what sentences tell beside the gap itself


def _with_stage_work(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """Stage work of the rank in that step (own_ns), and of the rank of its pipeline with most (slowest_ns, _rank)."""
    took = (pl.col("end_ns") - pl.col("start_ns")).sum()
    work = trace.of(*STAGE_KINDS).group_by("rank", "step").agg(took.alias("own_ns")).with_columns(pipeline_of(trace))
    together = ("pipeline", "step")
    work = work.with_columns(
        pl.col("own_ns").max().over(together).alias("slowest_ns"),
        pl.col("rank").sort_by("own_ns", "rank").last().over(together).alias("slowest_rank"),
    )
    return table.join(work.drop("pipeline"), on=["rank", "step"], how="left", maintain_order="left")


def _with_their_layer(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """With which layer a straggler spent most of the time it was waited for (their_layer, their_layer_ns)."""
    layers = trace.of(*LAYER_KINDS).sort("start_ns").with_columns(_layer_words().alias("words"))
    of_rank = {key[0]: rows for key, rows in layers.partition_by("rank", as_dict=True).items()}
    found = [
        _longest_within(of_rank[by_rank], start_ns, end_ns)
        if cause == Cause.STRAGGLER and by_rank in of_rank
        else (None, None)
        for cause, by_rank, start_ns, end_ns in table.select("cause", "by_rank", "start_ns", "end_ns").iter_rows()
    ]
    names, spent = zip(*found) if found else ((), ())
    return table.with_columns(
        pl.Series("their_layer", names, dtype=pl.String), pl.Series("their_layer_ns", spent, dtype=pl.Int64)
    )


def _longest_within(layers: pl.DataFrame, start_ns: int, end_ns: int) -> tuple[str | None, int | None]:
    """The layer of one rank with most time between two moments, and how much. Rows by start; layers hardly nest."""
    last = layers["start_ns"].search_sorted(end_ns)
    first = layers["end_ns"].search_sorted(start_ns)
    inside_ns = pl.col("end_ns").clip(None, end_ns) - pl.col("start_ns").clip(start_ns)
    spent = layers[first:last].group_by("words").agg(inside_ns.clip(0).sum().alias("spent_ns"))
    return spent.sort("spent_ns", "words", descending=[True, False]).row(0) if spent.height else (None, None)


_LONGEST_NAME = 60
"""Letters of a layer's or kernel's name in a sentence."""


def _with_neighbours(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """What the rank did before and after the gap (`before`, `after`)."""
    kind = pl.col("kind").cast(pl.String)
    work = trace.events.filter(kind.is_in([*WORK_KINDS, "kernel"])).with_columns(_work_words())
    outer_first = work.sort("end_ns", "start_ns")  # of those that end together the innermost is last
    ended = outer_first.select("rank", "end_ns", pl.col("words").alias("before"))
    inner_first = work.sort(["start_ns", "end_ns"])
    begun = inner_first.select("rank", "start_ns", pl.col("words").alias("after"))
    table = table.sort("start_ns").join_asof(
        ended, left_on="start_ns", right_on="end_ns", by="rank", strategy="backward", check_sortedness=False
    )  # fmt: skip
    return table.sort("end_ns").join_asof(
        begun, left_on="end_ns", right_on="start_ns", by="rank", strategy="forward", check_sortedness=False
    )  # fmt: skip


def _work_words() -> pl.Expr:
    """ "backward fc2 of microbatch 3"."""
    of = pl.format("of microbatch {}", pl.col("microbatch"))
    return pl.concat_str([_layer_words(), of], separator=" ", ignore_nulls=True).alias("words")


def _layer_words() -> pl.Expr:
    """ "backward fc2"; of a GPU kernel only what it does, without its types and namespaces."""
    plain = pl.col("layer").str.replace_all(r"^void |\(anonymous namespace\)::", "").str.replace(r"[<(].*$", "")
    kernel = plain.str.replace(r"^(\w+::)+", "").str.strip_chars()
    is_kernel = pl.col("kind").cast(pl.String) == str(Kind.KERNEL)
    name = pl.when(is_kernel).then(kernel).otherwise("layer").str.slice(0, _LONGEST_NAME)
    kind = pl.col("kind").cast(pl.String).str.replace_all("_", " ")
    return pl.concat_str([kind, name], separator=" ", ignore_nulls=True)
