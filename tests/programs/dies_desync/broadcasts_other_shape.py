"""Rank 2 expects a smaller broadcast than rank 0 sends: its vocabulary is that of an older checkpoint. Gloo aborts it.

Verdict: collective-shape-mismatch; ranks: 2; exit: 1|134
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    vocabulary = 90 if step == 4 and dist.get_rank() == 2 else 100
    embedding = torch.ones(vocabulary, 8)
    dist.broadcast(embedding, src=0)
    dist.barrier()
