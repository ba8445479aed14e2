"""Rank 1 runs a command to fetch the next shard, and the command never returns.

Verdict: stuck-on-io; ranks: 1; says: waits_for_child.py:22
On two ranks.
"""

import ctypes
import signal
import subprocess

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def die_with_parent():
    ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)


def fetch(shard):
    command = ["sleep", "infinity"] if shard else ["true"]
    subprocess.run(command, check=True, preexec_fn=die_with_parent)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(100):
    if step % 4 == 0 and dist.get_rank() == 1:
        fetch(step)
    model(torch.ones(4, 8)).sum().backward()
