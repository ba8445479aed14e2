"""Under DDP rank 0 waits for a lock that nobody releases; the others' hosts are in the optimizer's step or later.

Hang: stuck-on-lock; ranks: 0; says: backward_waits_for_a_lock.py:22; side: host; phase: backward
"""

import os
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
model = DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
table = threading.Lock()
for step in range(100):
    if dist.get_rank() == 0 and step == 3:
        table.acquire()
    with table:
        batch = torch.ones(4, 8, device="cuda")
    optimizer.zero_grad()
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    print(step, float(loss))
