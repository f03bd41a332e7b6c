"""Which rows of a trace are one operation, and what each operation cost: event rows in, a table of syncs out.

Collectives match by group, step, operation and number; messages by sender, receiver and number. The cost is split as
the graph needs it: `transfer_ns` occupies the lane, `latency_ns` does not. Where the plan emulates a link, it says how;
elsewhere a collective's whole cost occupies its lane, and a message's does not:

    collective  its completion - the latest of its last member's arrival and the completion before it on its lane
    message     its completion - the latest of its send and its receiver's asking for it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from labkit.link import Link, link_seconds
from labkit.replay.changes import Changes
from labkit.replay.graph import COLLECTIVE, RECV, SEND, Syncs

_SAME = ("rank", "step", "gid", "code", "peer", "seq", "stage", "microbatch", "layer_code")
"""Columns in which a wait equals the sync it waits for."""

_lasts = pl.col("end_ns") > pl.col("arrival_ns")


@dataclass(frozen=True)
class Wiring:
    """What emulated the links of a trace, and how exact its times are."""

    links: Mapping[str, Link]
    scale: float  # ns of the trace for one second of a link
    exact: bool  # times are set or computed, not stamped by whoever waited

    @classmethod
    def of(cls, plan: Mapping[str, Any], source: str) -> Wiring:
        links = {
            axis: Link(**link) if isinstance(link, dict) else link for axis, link in (plan.get("link") or {}).items()
        }
        exact = bool(plan.get("pace")) or source in ("replayed", "predicted", "planned")
        return cls(links, float(plan.get("time_scale") or 1.0) * 1e9, exact)


@dataclass(frozen=True)
class Matched:
    """The operations of a trace.

    table   one row per sync, by its number: what it is, when it was issued and done, what it costs
    issues  one row per sync row of the trace: `row`, `sync`, its own `end_ns`
    waits   one row per wait row of the trace: `row`, `sync`, and whether it `blocked`
    lonely  syncs without their counterpart
    rendezvous: a send is over only once its receiver has asked for it, as with gloo
    """

    table: pl.DataFrame
    issues: pl.DataFrame
    waits: pl.DataFrame
    lonely: int
    rendezvous: bool

    def syncs(self) -> Syncs:
        columns = ("kind", "num_members", "partner", "lane", "transfer_ns", "latency_ns")
        return Syncs(*(self.table[name].to_list() for name in columns))


def match(rows: pl.DataFrame, wiring: Wiring, changes: Changes) -> Matched:
    """The operations among `rows` (a `row` number in each), with their costs under `changes`."""
    keyed = _keyed(rows)
    syncs = _numbered(keyed.filter(pl.col("kind") == "sync"))
    waits = _waits(keyed.filter(pl.col("kind") == "wait"), syncs)
    table = _table(syncs, waits)
    table, lonely = _expected(table, wiring), _num_lonely(table)
    table = _with_recv_cost(table, wiring)
    rendezvous = not table.filter((pl.col("kind") == SEND) & ~pl.col("emulated") & _lasts).is_empty()
    waits = _judged(waits, table, rendezvous=rendezvous)
    table = _changed(table, wiring, changes)
    rendezvous = rendezvous and bool(table["as_was"].all())
    return Matched(table, syncs.select("row", "sync", "end_ns"), waits, lonely, rendezvous)


def _keyed(rows: pl.DataFrame) -> pl.DataFrame:
    """Syncs and waits with what tells them apart as numbers."""
    columns = (
        "row",
        "kind",
        "rank",
        "step",
        "microbatch",
        "stage",
        "start_ns",
        "end_ns",
        "peer",
        "seq",
        "size_bytes",
        "axis",
    )
    keyed = rows.lazy().filter(pl.col("kind").is_in(["sync", "wait"]))
    return keyed.select(
        *columns,
        "op",
        pl.col("group").list.len().cast(pl.Int64).alias("num_ranks"),
        pl.col("group").hash().reinterpret(signed=True).alias("gid"),
        pl.when(pl.col("op") == "send")
        .then(SEND)
        .when(pl.col("op") == "recv")
        .then(RECV)
        .otherwise(COLLECTIVE)
        .cast(pl.Int64)
        .alias("kind_code"),
        pl.col("op").hash().reinterpret(signed=True).alias("code"),
        pl.col("layer").hash().reinterpret(signed=True).alias("layer_code"),
    ).collect()


def _numbered(syncs: pl.DataFrame) -> pl.DataFrame:
    """Sync rows with the number of their operation: collectives first, then each side of each message."""
    kind, rank = syncs["kind_code"].to_numpy(), syncs["rank"].cast(pl.Int64).to_numpy()
    peer = syncs["peer"].fill_null(-1).cast(pl.Int64).to_numpy()
    source = np.where(kind == SEND, rank, np.where(kind == RECV, peer, -1))
    target = np.where(kind == SEND, peer, np.where(kind == RECV, rank, -1))
    word = np.where(kind == COLLECTIVE, syncs["code"].to_numpy(), -1)
    pair = _mixed(syncs["gid"].to_numpy(), source, target)
    operation = _mixed(pair, *_integers(syncs, "step", "seq"), word)
    operation = _mixed(operation, _occurrence(_mixed(operation, rank, kind)))
    number = np.empty(len(kind), np.int64)
    collective = kind == COLLECTIVE
    _, number[collective] = np.unique(operation[collective], return_inverse=True)
    num = int(number[collective].max(initial=-1)) + 1
    number[~collective] = num + np.arange(len(kind) - collective.sum())
    found = {"pair": pair, "operation": operation, "source": source, "target": target, "sync": number}
    return syncs.with_columns(pl.Series(name, values) for name, values in found.items())


def _integers(frame: pl.DataFrame, *names: str) -> list[np.ndarray]:
    return [frame[name].fill_null(-1).cast(pl.Int64).to_numpy() for name in names]


def _mixed(*columns: np.ndarray) -> np.ndarray:
    """One number for equal rows of the columns (64 bits, so different rows differ)."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed.view(np.int64)


def _occurrence(keys: np.ndarray) -> np.ndarray:
    """0 for the first of equal keys, 1 for the second ... Two groups of the same ranks count their operations alike."""
    order = np.argsort(keys, kind="stable")
    begins = np.diff(keys[order], prepend=keys[order[:1]] - 1) != 0 if len(keys) else np.zeros(0, bool)
    place = np.arange(len(keys))
    found = np.empty(len(keys), np.int64)
    found[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return found


def _waits(waits: pl.DataFrame, syncs: pl.DataFrame) -> pl.DataFrame:
    """Wait rows with the number of the operation they wait for; a wait for an unknown one is none."""
    same = pl.Series("same", _mixed(*_integers(syncs, *_SAME)))
    known = syncs.select("sync", pl.col("row").alias("sync_row")).with_columns(same).unique("same", keep="first")
    waits = waits.select("row", "rank", "start_ns", "end_ns").with_columns(
        pl.Series("same", _mixed(*_integers(waits, *_SAME)))
    )
    return waits.join(known, on="same", how="inner", maintain_order="left").drop("same")


def _table(syncs: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """One row per operation, by number."""
    number = syncs["sync"].to_numpy()
    order = np.argsort(number, kind="stable")
    begins = np.flatnonzero(np.diff(number[order], prepend=-1))
    first = syncs[order[begins]]
    if not len(begins):
        begins = np.zeros(0, np.int64)

    def over(name: str, best: np.ufunc) -> np.ndarray:
        values = syncs[name].fill_null(0).to_numpy()[order]
        return best.reduceat(values, begins) if len(begins) else values

    kind = first["kind_code"].to_numpy()
    table = pl.DataFrame(
        {
            "sync": number[order[begins]],
            "kind": kind,
            "num_members": np.diff(begins, append=len(number)),
            "num_ranks": first["num_ranks"],
            "arrival_ns": over("start_ns", np.maximum),
            "end_ns": over("end_ns", np.minimum),
            "size_bytes": over("size_bytes", np.maximum),
            "axis": first["axis"],
            "op": first["op"],
            "partner": _partners(kind, first["operation"].to_numpy()),
            "lane": np.unique(first["pair"].to_numpy(), return_inverse=True)[1],
        }
    )
    asked = waits.group_by("sync").agg(pl.col("start_ns").min().alias("wait_ns"))
    return table.join(asked, on="sync", how="left", maintain_order="left")


def _partners(kind: np.ndarray, operation: np.ndarray) -> np.ndarray:
    """Of each message side, the number of the other; -1 where there is none."""
    partner = np.full(len(kind), -1)
    sends, receives = np.flatnonzero(kind == SEND), np.flatnonzero(kind == RECV)
    _, i, j = np.intersect1d(operation[sends], operation[receives], return_indices=True)
    partner[sends[i]], partner[receives[j]] = receives[j], sends[i]
    return partner


def _num_lonely(table: pl.DataFrame) -> int:
    collective = pl.col("kind") == COLLECTIVE
    return table.filter(
        (collective & (pl.col("num_members") != pl.col("num_ranks"))) | (~collective & (pl.col("partner") < 0))
    ).height


def _with_link(table: pl.DataFrame, links: Mapping[str, Link], scale: float, suffix: str) -> pl.DataFrame:
    """Columns transfer and latency of the axis' link; null where the axis has none."""
    cases = table.select("axis", "op", "num_ranks").unique()
    found = []
    for case in cases.iter_rows(named=True):
        link = links.get((case["axis"] or "").partition("+")[0])
        if link is not None:
            latency_s, per_byte_s = link_seconds(link, case["op"], 1, case["num_ranks"])
            found.append(case | {"per_byte": per_byte_s * scale, "latency" + suffix: int(latency_s * scale)})
    schema = cases.schema | {"per_byte": pl.Float64, "latency" + suffix: pl.Int64}
    joined = table.join(pl.DataFrame(found, schema), on=list(cases.schema), how="left", maintain_order="left")
    transfer = (pl.col("per_byte") * pl.col("size_bytes")).cast(pl.Int64)
    return joined.with_columns(transfer.alias("transfer" + suffix)).drop("per_byte")


def _expected(table: pl.DataFrame, wiring: Wiring) -> pl.DataFrame:
    """When each collective and send frees its lane by the links (or by what collectives took), and what came on top."""
    table = _with_link(table, wiring.links, wiring.scale, "_ns")
    lanes = table.filter(pl.col("kind") != RECV).sort("lane", "arrival_ns", "sync")
    before = pl.col("end_ns").shift(1).over("lane").fill_null(0)
    took = (pl.col("end_ns") - pl.max_horizontal("arrival_ns", before)).clip(0)
    measured = pl.when(pl.col("kind") == COLLECTIVE).then(took).otherwise(0)
    lanes = lanes.with_columns(
        pl.col("latency_ns").is_not_null().alias("emulated"),
        pl.col("latency_ns").fill_null(0),
        pl.col("transfer_ns").fill_null(measured),
    )
    total = pl.col("transfer_ns").cum_sum().over("lane")
    lanes = lanes.with_columns(total.alias("total"))
    slack = (pl.col("arrival_ns") - pl.col("total") + pl.col("transfer_ns")).cum_max().over("lane")
    lanes = lanes.with_columns((pl.col("total") + slack).alias("free_ns"))
    late = (pl.col("end_ns") - pl.col("free_ns") - pl.col("latency_ns")).clip(0)
    lanes = lanes.with_columns(pl.when(pl.col("kind") == COLLECTIVE).then(late).otherwise(0).alias("extra_ns"))
    columns = ["sync", "emulated", "transfer_ns", "latency_ns", "free_ns", "extra_ns"]
    return table.drop("transfer_ns", "latency_ns").join(
        lanes.select(columns), on="sync", how="left", maintain_order="left"
    )


def _with_recv_cost(table: pl.DataFrame, wiring: Wiring) -> pl.DataFrame:
    """Of each receive, what it took on top of the link. Seen only where the receiver was already waiting for it."""
    sends = table.filter(pl.col("kind") == SEND).select(
        pl.col("sync").alias("partner"),
        (pl.col("free_ns") + pl.col("latency_ns")).alias("there_ns"),
        pl.col("emulated").alias("sent_emulated"),
    )
    table = table.join(sends, on="partner", how="left", maintain_order="left")
    base = pl.max_horizontal("there_ns", "arrival_ns")
    took = (pl.col("end_ns") - base).clip(0)
    seen = wiring.exact | (pl.col("wait_ns") <= base)
    table = table.with_columns(base.alias("base_ns"), pl.when(seen.fill_null(True)).then(took).alias("seen_ns"))
    typical = pl.col("seen_ns").filter(pl.col("kind") == RECV).median().over("axis").fill_null(0).cast(pl.Int64)
    unseen = pl.min_horizontal(typical, (pl.col("wait_ns") - base).clip(0))
    is_recv = pl.col("kind") == RECV
    return table.with_columns(
        pl.when(is_recv).then(pl.col("seen_ns").fill_null(unseen)).otherwise("extra_ns").alias("extra_ns"),
        pl.when(is_recv).then("sent_emulated").otherwise("emulated").fill_null(False).alias("emulated"),
        pl.col("transfer_ns", "latency_ns").fill_null(0),
    )


def _judged(waits: pl.DataFrame, table: pl.DataFrame, *, rendezvous: bool) -> pl.DataFrame:
    """Which waits blocked, and how much later than the completion each went on."""
    asked = table.filter(pl.col("kind") == RECV).select(
        pl.col("partner").alias("sync"), pl.col("arrival_ns").alias("asked_ns")
    )
    met = pl.max_horizontal("free_ns", "asked_ns") if rendezvous else pl.col("free_ns")
    done = (
        pl.when(pl.col("kind") == COLLECTIVE)
        .then(pl.col("free_ns") + pl.col("latency_ns") + pl.col("extra_ns"))
        .when(pl.col("kind") == SEND)
        .then(met)
        .otherwise(pl.col("base_ns") + pl.col("extra_ns"))
    )
    known = table.join(asked.filter(pl.col("sync") >= 0), on="sync", how="left").select("sync", done.alias("done_ns"))
    waits = waits.join(known, on="sync", how="left", maintain_order="left")
    return waits.with_columns(
        (pl.col("done_ns") > pl.col("start_ns")).alias("blocked"),
        (pl.col("end_ns") - pl.col("done_ns")).clip(0).alias("lag_ns"),
    )


def _changed(table: pl.DataFrame, wiring: Wiring, changes: Changes) -> pl.DataFrame:
    """The table with the costs under `changes`: transfer_ns and latency_ns (all that does not occupy the lane).

    `as_was` marks the syncs whose cost is the captured one, with all that this machine added.
    """
    table = table.with_columns(
        (pl.col("latency_ns") + pl.col("extra_ns")).alias("latency_ns"), pl.lit(True).alias("as_was")
    )
    if changes.device_time == "cpu":
        table = _least(table, ["axis", "op", "size_bytes"], pl.col("emulated").not_())
    if changes.link:
        table = _on_new_link(table, wiring, changes)
    if changes.infinite_bandwidth:
        known = pl.col("emulated") | ~pl.col("as_was")
        table = _least(table, ["axis", "op"], known.not_())
        latency = pl.when(known).then(pl.col("latency_ns")).otherwise(pl.col("latency_ns") + pl.col("transfer_ns"))
        table = table.with_columns(latency.alias("latency_ns"), pl.lit(0).alias("transfer_ns"))
    if changes.no_sync:
        table = table.with_columns(
            pl.lit(0).alias("transfer_ns"), pl.lit(0).alias("latency_ns"), pl.lit(False).alias("as_was")
        )
    return table


def _least(table: pl.DataFrame, alike: list[str], where: pl.Expr) -> pl.DataFrame:
    """Captured costs replaced by the least among syncs that are alike."""
    return table.with_columns(
        pl.when(where).then(pl.col("transfer_ns").min().over(alike)).otherwise("transfer_ns").alias("transfer_ns"),
        pl.when(where).then(pl.col("latency_ns").min().over(alike)).otherwise("latency_ns").alias("latency_ns"),
        (pl.col("as_was") & where.not_()).alias("as_was"),
    )


def _on_new_link(table: pl.DataFrame, wiring: Wiring, changes: Changes) -> pl.DataFrame:
    """Costs by the new link alone; the latency of a message is counted on its send."""
    table = _with_link(table, changes.link, wiring.scale, "_new")
    new, receives = pl.col("latency_new").is_not_null(), pl.col("kind") == RECV
    latency = pl.when(receives).then(0).otherwise("latency_new")
    return table.with_columns(
        pl.when(new).then("transfer_new").otherwise("transfer_ns").alias("transfer_ns"),
        pl.when(new).then(latency).otherwise("latency_ns").alias("latency_ns"),
        (pl.col("as_was") & ~new).alias("as_was"),
        (pl.col("emulated") | new).alias("emulated"),
    ).drop("transfer_new", "latency_new")
