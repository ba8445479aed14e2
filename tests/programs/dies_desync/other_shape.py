"""Rank 1 reduces a batch with a row too many: gloo aborts a peer at once, which is not the one to blame.

Verdict: collective-shape-mismatch; ranks: 1; exit: 1|134
On two ranks.
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    rows = 5 if step == 4 and dist.get_rank() == 1 else 4
    predictions = torch.ones(rows, 8)
    dist.all_reduce(predictions)
