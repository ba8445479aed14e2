"""A second thread of each rank sums the metrics over the same group; on rank 2 it gets in before the main thread.

Verdict: collective-mismatch; ranks: 2
"""

import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def sum_metrics():
    time.sleep(0.1 if dist.get_rank() == 2 else 1.5)
    dist.barrier()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(100):
    if step == 4:
        threading.Thread(target=sum_metrics, daemon=True).start()
        time.sleep(1)  # reading the next file
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
