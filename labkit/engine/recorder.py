"""What a rank remembers: one integer row per event, in memory, until it is sent away at the end of a step.

In: calls from the hooks and from the recording process group. Out: `Part`s. Appending a row is all that happens
while training runs; names, tables and files come later. Bounded: past the limit, events are only counted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from labkit.board import Board
from labkit.event import FIELDS, KINDS, NONE, Kind
from labkit.part import Names, Part

CODE = {kind: code for code, kind in enumerate(KINDS)}
FIELD = {name: place for place, name in enumerate(FIELDS)}
_SYNC, _WAIT, _VALUE, _LOAD = (CODE[kind] for kind in (Kind.SYNC, Kind.WAIT, Kind.VALUE, Kind.LOAD))
KIND, START, END, LATE, SIZE = (FIELD[name] for name in ("kind", "start_ns", "end_ns", "late_ns", "size_bytes"))
TIMES = [START, END]
UNFINISHED = -2

Row = list[int]


class Codes:
    """Numbers for names, in order of first use."""

    def __init__(self, names: list | None = None) -> None:
        self.names = list(names or ())
        self._code = {self._key(name): code for code, name in enumerate(self.names)}

    def __call__(self, name: str | list[int]) -> int:
        key = self._key(name)
        code = self._code.get(key)
        if code is None:
            code = self._code[key] = len(self.names)
            self.names.append(name)
        return code

    @staticmethod
    def _key(name: str | list[int]) -> str | tuple[int, ...]:
        return name if isinstance(name, str) else tuple(name)


class Recorder:
    """Events of one rank. `step`, `microbatch`, `stage` and `layer` say where training stands now."""

    def __init__(
        self, rank: int, layers: list[str], *, max_events: int, value_limit_bytes: int = 0, spans: bool = True,
        board: Board | None = None,
    ) -> None:  # fmt: skip
        self.rank = rank
        self.layers, self.ops, self.groups, self.dtypes = Codes(layers), Codes(), Codes(), Codes()
        self.step = self.microbatch = self.layer = NONE
        self.stage = 0
        self.param_bytes = self.grad_bytes = self.optimizer_bytes = self.activation_bytes = NONE
        self.value_limit_bytes = value_limit_bytes
        self.spans = spans
        self._rows: list[Row | tuple[int, ...]] = []
        self._dtype_codes: dict[torch.dtype, int] = {}
        self._samples: list[list[int]] = []
        self._values: list[tuple[list[int], bytes]] = []
        self._room = max_events
        self._dropped = 0
        self._board = board

    # -- events

    def begin(self, kind: int, t_ns: int, op: int = NONE) -> None:
        """Tell the board what starts now; nothing is stored."""
        if self._board is not None:
            self._board.doing(kind, self.step, self.microbatch, self.layer, op, t_ns)

    def span(
        self, kind: int, start_ns: int, end_ns: int, cpu_ns: int = NONE, late_ns: int = NONE, layer: int = NONE,
        microbatch: int | None = None, extra: int = NONE,
    ) -> None:  # fmt: skip
        """A piece of work of this rank."""
        if not self.spans:
            return
        if self._room <= 0:
            self._dropped += 1
            return
        self._room -= 1
        mb = self.microbatch if microbatch is None else microbatch
        self._rows.append(
            (kind, self.step, mb, self.stage, layer, start_ns, end_ns, cpu_ns, late_ns, NONE, NONE, NONE, NONE, NONE,
             NONE, self.param_bytes, self.grad_bytes, self.optimizer_bytes, self.activation_bytes, extra)
        )  # fmt: skip

    def load(self, start_ns: int, end_ns: int, microbatch: int, samples: list[int]) -> None:
        if self.spans and self._room > 0:
            self._samples.append(samples)
        self.span(_LOAD, start_ns, end_ns, microbatch=microbatch, extra=len(self._samples) - 1)

    def dtype_code(self, dtype: torch.dtype) -> int:
        """Code of a tensor's type."""
        code = self._dtype_codes.get(dtype)
        if code is None:
            code = self._dtype_codes[dtype] = self.dtypes(str(dtype).removeprefix("torch."))
        return code

    def sync(
        self, start_ns: int, op: int, group: int, peer: int, size_bytes: int, dtype: int, seq: int,
        stage: int | None = None, microbatch: int | None = None,
    ) -> Row:  # fmt: skip
        """An operation between ranks was issued. The caller sets the row's end when it completes."""
        row = [
            _SYNC, self.step, self.microbatch if microbatch is None else microbatch,
            self.stage if stage is None else stage, self.layer, start_ns, UNFINISHED, NONE, NONE, op, group, peer,
            size_bytes, dtype, seq, NONE, NONE, NONE, NONE, NONE,
        ]  # fmt: skip
        self._append(row)
        self.begin(_SYNC, start_ns, op)
        return row

    def wait(self, sync: Row, start_ns: int, end_ns: int) -> None:
        """The rank was blocked in `sync` for this interval."""
        if end_ns > start_ns:
            row = list(sync)
            row[KIND], row[START], row[END], row[LATE], row[SIZE] = _WAIT, start_ns, end_ns, NONE, NONE
            self._append(row)

    def value(self, what: str, tensor: Tensor, t_ns: int, *, of: int | None = None) -> None:
        """Keep a copy of a tensor's value, if it is small enough. The tensor itself is not kept.

        what: weight, input, output ... `of` is the code of its name; else it belongs to the layer at work.
        """
        if tensor.numel() * tensor.element_size() > self.value_limit_bytes:
            return
        # A clone: numpy pins the storage it looks at, and FSDP later resizes that of the tensor. numpy has no bfloat16.
        plain = tensor.detach().to(torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype).cpu().clone()
        data = plain.contiguous().numpy().tobytes() if self._room > 0 else b""
        if data:
            self._values.append((list(plain.shape), data))
        self._append(
            (_VALUE, self.step, self.microbatch, self.stage, self.layer if of is None else of, t_ns, t_ns, NONE,
             NONE, self.ops(what), NONE, NONE, len(data), self.dtype_code(plain.dtype), NONE,
             NONE, NONE, NONE, NONE, len(self._values) - 1)
        )  # fmt: skip

    def _append(self, row: Row | tuple[int, ...]) -> None:
        if self._room > 0:
            self._room -= 1
            self._rows.append(row)
        else:
            self._dropped += 1

    # -- away

    def take(self, resolve: Callable[[np.ndarray], np.ndarray] | None = None) -> Part:
        """Everything recorded since the last call, except syncs that have not completed yet.

        resolve: turns marks of a GPU's clock into times.
        """
        rows, self._rows = self._rows, []
        waiting = [row for row in rows if row[END] == UNFINISHED]
        done = [row for row in rows if row[END] != UNFINISHED] if waiting else rows
        self._rows[:0] = waiting
        samples, self._samples = self._samples, []
        values, self._values = self._values, []
        dropped, self._dropped = self._dropped, 0
        names = Names(self.layers.names, self.ops.names, [list(g) for g in self.groups.names], self.dtypes.names)
        matrix = np.array(done, dtype=np.int64) if done else np.empty((0, len(FIELDS)), np.int64)
        if resolve is not None:
            matrix[:, TIMES] = resolve(matrix[:, TIMES])
        return Part(self.rank, names, matrix.tobytes(), samples, values, dropped)
