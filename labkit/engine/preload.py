"""Imported once by the forkserver, so that every rank starts with torch and the data in memory.

Runs no tensor operation: a process that used torch's thread pools must not be forked.
"""

import atexit
import contextlib
import gc
import os

import torch
import torch._dynamo  # else each rank pays more than a second for it
import torch.distributed
import torch.distributed._composable.replicate_with_fsdp
import torch.distributed.algorithms._checkpoint.checkpoint_wrapper
import torch.distributed.fsdp
import torch.distributed.optim
import torch.distributed.pipelining
import torch.distributed.tensor.parallel
import torch.nn.parallel

from labkit.digits import digits
from labkit.engine import data, worker  # noqa: F401

torch.set_num_threads(1)
atexit.register(os._exit, 0)  # the server has nothing to tidy up, and taking torch apart takes a second
with contextlib.suppress(ModuleNotFoundError):
    digits()
data.text()
gc.collect()
gc.freeze()  # ranks then need not look at any of this again, nor copy its pages by looking
