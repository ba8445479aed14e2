"""Rank 1 has a batch less: it is at the barrier after the loop, while the others wait for its gradients.

Hang: collective-mismatch; ranks: 1; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
model = DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.ones(4, 8)] * (9 if dist.get_rank() == 1 else 10)
for batch in batches:
    optimizer.zero_grad()
    loss = model(batch.cuda()).sum()
    loss.backward()
    optimizer.step()
    print(float(loss))
dist.barrier()
