"""Names that profilers give, and what they mean here. Words only.

In: a kernel's or a call's name. Out: our names of collectives, kinds of kernels, sizes of types.
"""

from __future__ import annotations

import re
from functools import lru_cache

GPU_CATEGORIES = {
    "kernel": None,
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
"""Categories of events on a GPU (old and new) and the `op` of those that move memory."""

CPU_OP_CATEGORIES = ("cpu_op", "operator")

SYNC_KERNEL = r"(?i)(?:nccl|rccl|msccl)(?:pp)?(?:Dev)?Kernel"
"""Kernels of NCCL and RCCL: ncclKernel_AllReduce_RING_LL_Sum_float(...), ncclDevKernel_AllGather_RING_LL(...)."""

COPY_KERNEL = r"^Mem(?:cpy|set)"

SYNC_ANNOTATION = r"^(?:nccl|gloo|mpi|ucc|xccl|hccl|rccl|c10d):"
"""CPU annotations around a collective: nccl:all_reduce, gloo:_all_gather_base, nccl:send 0->1."""

PARAM_CALL = "record_param_comms"

STEP = r"^ProfilerStep#(\d+)$"

MODULE = "nn.Module: "

MARK = rf"^(?:ProfilerStep|{MODULE}|{PARAM_CALL}$)|{SYNC_ANNOTATION}"
"""What is looked up by its name among what the CPU did."""

_OPS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "barrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
}
"""Letters of a name -> our op; the first that fits."""

_NOT_LETTERS = re.compile(r"[^a-z]")


@lru_cache(10_000)
def op_of(name: str) -> str | None:
    """ "nccl:_all_gather_base", "ncclDevKernel_AllGather_RING_LL(...)", "_allgather_base" -> "all_gather"."""
    letters = _NOT_LETTERS.sub("", name.partition("(")[0].lower())
    return next((op for word, op in _OPS.items() if word in letters), None)


ELEMENT_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "half": 2, "bfloat16": 2, "short": 2, "int16": 2, "float16": 2,
    "float": 4, "int": 4, "int32": 4, "float32": 4,
    "double": 8, "long": 8, "int64": 8, "float64": 8,
}  # fmt: skip
"""Bytes of an element by the profiler's name of its type, in lower case."""

DTYPES = {"byte": "uint8", "char": "int8", "half": "float16", "short": "int16", "float": "float32", "int": "int32",
          "double": "float64", "long": "int64"}  # fmt: skip
"""The profiler's names of types that torch calls otherwise today."""
