"""In a ring of batch_isend_irecv rank 2 takes its peers from a ring of three: it sends to 0 and listens to 1.

Verdict: group-deadlock; ranks: 0,2-3
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
keys, incoming = torch.ones(64), torch.empty(64)
for step in range(100):
    size = 3 if step == 4 and rank == 2 else 4
    exchange = [
        dist.P2POp(dist.isend, keys, (rank + 1) % size),
        dist.P2POp(dist.irecv, incoming, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
