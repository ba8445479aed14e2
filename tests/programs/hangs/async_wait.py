"""Rank 1 waits on the handle of an asynchronous all-reduce; rank 0 had an infinite loss and left it out.

Verdict: collective-mismatch; ranks: 0
On two ranks.
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    loss = torch.tensor(torch.inf if step == 4 and dist.get_rank() == 0 else 0.5)
    work = None
    if loss.isfinite():
        work = dist.all_reduce(loss, async_op=True)
    activations = torch.ones(8, 8) @ torch.ones(8, 8)
    if work:
        work.wait()
    dist.barrier()
