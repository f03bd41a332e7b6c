"""The messages of all-reduces written out by hand: which rank sent which chunk to which rank, in which round.

In: a `Trace` of a run with `grad_sync` ring, tree or gather. Out: `AllReduce`s, plain data. Pure: no widget.

Rounds count what the order of the sends alone allows: a rank sends one message and receives one at a time, and sends
only after what it received before. Ring of 4 ranks: 2 (4 - 1) = 6 rounds; tree: 2 log2(4) = 4; gather: 2 (4 - 1) = 6.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from labkit.trace import Trace

WHOLE = -1
"""The chunk of a message that carries the whole tensor."""

MAX_SENDS = 20_000
"""Messages in a picture, 100 ranks on a ring; all-reduces beyond are left out."""


@dataclass(frozen=True)
class Send:
    """One message. Ranks are global; `round` counts from 1; `number`: one of the numbers it
    carried, the same of each chunk, where values were kept."""

    sender: int
    receiver: int
    round: int
    chunk: int
    size_bytes: int
    start_ns: int
    end_ns: int
    row: int  # of the send in trace.events
    recv_row: int
    number: float | None = None


@dataclass(frozen=True)
class AllReduce:
    """One all-reduce of one group: its messages by round."""

    step: int | None
    group: tuple[int, ...]
    shape: str  # ring, tree, gather or messages
    num_chunks: int
    sends: tuple[Send, ...]

    @property
    def num_rounds(self) -> int:
        return max((send.round for send in self.sends), default=0)

    @property
    def size_bytes(self) -> int:
        """Of the tensor that all ranks end up with the sum of."""
        sizes = {send.chunk: send.size_bytes for send in self.sends}
        return sum(sizes.values())


def all_reduces(trace: Trace) -> list[AllReduce]:
    """Every all-reduce that the trace shows message by message, by step and group, up to `MAX_SENDS` messages."""
    found, num_sends = [], 0
    for (step, group), messages in _by_group(_pairs(trace)).items():
        num_sends += len(messages)
        if num_sends > MAX_SENDS:
            break
        shape = shape_of(messages, group)
        found += [_all_reduce(trace, step, group, shape, part) for part in _calls(messages, group, shape)]
    return found


def count_messages(trace: Trace) -> int:
    """How many messages between data parallel ranks the trace holds whole."""
    return len(_pairs(trace))


def shape_of(messages: list[dict[str, Any]], group: tuple[int, ...]) -> str:
    """What the links between the ranks look like: a ring, a star around the first rank (gather), a binary tree."""
    place = {rank: k for k, rank in enumerate(group)}
    links = {(place[one["rank"]], place[one["peer"]]) for one in messages}
    n = len(group)
    if links == {(k, (k + 1) % n) for k in range(n)} and n > 1 and (n > 2 or len(messages) > 2):
        return "ring"
    up = {(k, k - (k & -k)) for k in range(1, n)}
    star = {(k, 0) for k in range(1, n)}
    for shape, inward in (("tree", up), ("gather", star)):
        if links == inward | {(b, a) for a, b in inward}:
            return shape
    return "messages"


def _pairs(trace: Trace) -> list[dict[str, Any]]:
    """Sends between data parallel ranks with what their receive tells, as the sender issued them."""
    syncs = trace.events.with_row_index("row").filter(
        (pl.col("kind").cast(pl.String) == "sync") & (pl.col("axis") == "dp") & pl.col("peer").is_not_null()
    )
    sends = syncs.filter(pl.col("op") == "send")
    receives = syncs.filter(pl.col("op") == "recv").select(
        pl.col("rank").alias("peer"),
        pl.col("peer").alias("rank"),
        "group",
        "seq",
        pl.col("row").alias("recv_row"),
        pl.col("start_ns").alias("recv_start_ns"),
        pl.col("end_ns").alias("recv_end_ns"),
    )
    return sends.join(receives, on=["rank", "peer", "group", "seq"], how="inner").sort("row").to_dicts()


def _by_group(pairs: list[dict[str, Any]]) -> dict[tuple[int | None, tuple[int, ...]], list[dict[str, Any]]]:
    groups = defaultdict(list)
    for pair in pairs:
        groups[pair["step"], tuple(pair["group"])].append(pair)
    return dict(sorted(groups.items(), key=lambda item: (item[0][0] or 0, item[0][1])))


def _calls(messages: list[dict[str, Any]], group: tuple[int, ...], shape: str) -> list[list[dict[str, Any]]]:
    """A step's messages of one group cut into its all-reduces: each pair speaks equally often in every one of them."""
    each = 2 * (len(group) - 1) if shape == "ring" else 1
    spoken = defaultdict(list)
    for message in sorted(messages, key=lambda one: one["seq"]):
        spoken[message["rank"], message["peer"]].append(message)
    counts = {len(said) for said in spoken.values()}
    if shape == "messages" or len(counts) != 1 or counts.pop() % each:
        return [messages]
    num_calls = len(next(iter(spoken.values()))) // each
    return [[m for said in spoken.values() for m in said[k * each : k * each + each]] for k in range(num_calls)]


def _all_reduce(
    trace: Trace, step: int | None, group: tuple[int, ...], shape: str, messages: list[dict[str, Any]]
) -> AllReduce:
    messages = _with_rounds(messages, shape)
    chunks = _chunks(messages, group) if shape == "ring" else [WHOLE] * len(messages)
    numbers = _numbers(trace, messages, chunks)
    sends = [
        Send(
            sender=one["rank"],
            receiver=one["peer"],
            round=one["round"],
            chunk=chunk,
            size_bytes=one["size_bytes"],
            start_ns=one["start_ns"],
            end_ns=one["recv_end_ns"],
            row=one["row"],
            recv_row=one["recv_row"],
            number=number,
        )
        for one, chunk, number in zip(messages, chunks, numbers)
    ]
    sends.sort(key=lambda send: (send.round, send.sender, send.receiver))
    return AllReduce(step, group, shape, len(group) if shape == "ring" else 1, tuple(sends))


def _with_rounds(messages: list[dict[str, Any]], shape: str) -> list[dict[str, Any]]:
    """Every message with its round, see the module's head. Programs of ranks interleave; each runs in its own order."""
    programs, sent, received = _programs(messages, shape), defaultdict(int), defaultdict(int)
    known, done = {id(one): one for one in messages}, []
    while len(done) < len(messages):
        ready = [known[number] for number in _next(programs, known, shape)]
        if not ready:  # times that contradict each other: then the order of the table is all there is
            ready = [one for one in messages if "round" not in one][:1]
        for one in ready:
            source, target = one["rank"], one["peer"]
            one["round"] = 1 + max(sent[source], received[source], received[target])
        for one in ready:
            source, target = one["rank"], one["peer"]
            sent[source] = max(sent[source], one["round"])
            received[target] = max(received[target], one["round"])
            for rank, op in ((source, "send"), (target, "recv")):
                programs[rank].remove((op, id(one)))
            done.append(one)
    return sorted(done, key=lambda one: one["round"])


def _next(programs: dict[int, list[tuple[str, int]]], known: dict[int, dict[str, Any]], shape: str) -> list[int]:
    """Messages that both ends have come to. In a ring a rank issues its receive together with its send."""
    reach = 2 if shape == "ring" else 1
    heads = {rank: program[:reach] for rank, program in programs.items()}
    sends = [number for head in heads.values() for op, number in head if op == "send"]
    return [number for number in sends if ("recv", number) in heads[known[number]["peer"]]]


def _programs(messages: list[dict[str, Any]], shape: str) -> dict[int, list[tuple[str, int]]]:
    """What every rank sent and received, in its order. Paced ranks do much in one moment: then the shape tells."""
    keyed = defaultdict(list)
    for one in messages:
        for rank, op, start in ((one["rank"], "send", one["start_ns"]), (one["peer"], "recv", one["recv_start_ns"])):
            keyed[rank].append((start, *_place(one, op, shape), op, id(one)))
    return {rank: [entry[-2:] for entry in sorted(entries)] for rank, entries in keyed.items()}


def _place(message: dict[str, Any], op: str, shape: str) -> tuple[int, int]:
    """Order among events of the same moment: ring by number; else sums climb first, then results come down."""
    if shape == "ring":
        return message["seq"], op == "recv"
    distance = abs(message["rank"] - message["peer"])
    climbs = message["rank"] > message["peer"]
    return (0, distance) if climbs else (1, -distance if shape == "tree" else distance)


def _chunks(messages: list[dict[str, Any]], group: tuple[int, ...]) -> list[int]:
    """Which chunk each message of a ring carries: rank r starts with chunk r, then passes on what it last received."""
    place, n = {rank: k for k, rank in enumerate(group)}, len(group)
    first = {rank: min(one["seq"] for one in messages if one["rank"] == rank) for rank in group}
    chunks = []
    for one in messages:
        k = one["seq"] - first[one["rank"]]
        chunks.append((place[one["rank"]] - k) % n if k < n - 1 else (place[one["rank"]] + 1 - (k - n + 1)) % n)
    return chunks


def _numbers(trace: Trace, messages: list[dict[str, Any]], chunks: list[int]) -> list[float | None]:
    """One number of each chunk as each message carried it: the one that ends up largest, so that it tells something."""
    carried = _carried(trace, messages)
    last = {chunk: values for chunk, values in zip(chunks, carried) if values is not None and len(values)}
    place = {chunk: int(np.abs(values).argmax()) for chunk, values in last.items()}
    return [
        float(values[place[chunk]]) if values is not None and len(values) == len(last[chunk]) else None
        for chunk, values in zip(chunks, carried)
    ]


def _carried(trace: Trace, messages: list[dict[str, Any]]) -> list[np.ndarray | None]:
    """What each message carried, where values were kept and both ends agree on them; `messages` by round.

    What a rank put in at the moment of the send must be, byte for byte, what the other end took out. Paced ranks send
    many messages in one moment: then all of that moment must agree in order, or only one value may fit; else None.
    """
    kept = trace.of("value").filter(pl.col("op").is_in(["sync_in", "sync_out"]))
    columns = ("rank", "op", "start_ns", "size_bytes", "dtype", "data")
    at = defaultdict(list)
    for rank, op, t, size, dtype, data in kept.select(columns).iter_rows():
        at[rank, op, t, size].append((dtype, data))
    moments = defaultdict(list)
    for number, one in enumerate(messages):
        put = (one["rank"], "sync_in", one["start_ns"], one["size_bytes"])
        taken = (one["peer"], "sync_out", one["recv_end_ns"], one["size_bytes"])
        moments[put, taken].append(number)
    carried: list[np.ndarray | None] = [None] * len(messages)
    for (put, taken), numbers in moments.items():
        for number, value in zip(numbers, _agreed(at[put], at[taken], len(numbers))):
            carried[number] = None if value is None else np.frombuffer(value[1], value[0])
    return carried


def _agreed(put: list, taken: list, count: int) -> list:
    """The `count` values that passed from one end to the other; None where that is not certain."""
    if len(put) == len(taken) == count and put == taken:
        return put
    both = set(put) & set(taken)
    return [both.pop()] if count == 1 and len(both) == 1 else [None] * count
