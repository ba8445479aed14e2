"""The rank with the best loss gives its settings to all; rank 2 reads its own loss, not the average, and gives, too.

Verdict: collective-mismatch; ranks: 2; says: broadcast from rank 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(100):
    loss = torch.tensor([0.1 if rank == 2 and step == 5 else 1.0])
    own = loss.item()
    dist.all_reduce(loss)
    best = rank if own < 0.2 else 0
    settings = [{"step": step, "lr": 0.1}]
    dist.broadcast_object_list(settings, src=best)
