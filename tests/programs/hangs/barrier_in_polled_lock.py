"""Both ranks take a lock of the library filelock, which polls for it; who has it waits for the other one in a barrier.

Verdict: group-deadlock; ranks: 0-1; says: barrier_in_polled_lock.py:14
On two ranks.
"""

import torch
import torch.distributed as dist
from filelock import FileLock

dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(16))
with FileLock("cache.lock"):
    dist.barrier()
