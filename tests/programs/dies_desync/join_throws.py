"""Rank 1 has fewer batches, and `join` is told to throw then: each rank raises, with other words.

Verdict: uneven-inputs; ranks: 1; exit: 1
On two ranks.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
with model.join(throw_on_early_termination=True):
    for _ in range(5 - 2 * dist.get_rank()):
        model(torch.randn(2, 4)).sum().backward()
