"""The last five losses are kept whole, for an average that forgets.

Guard: none
"""

import collections

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
recent = collections.deque(maxlen=5)
for _ in range(60):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    recent.append(loss)
dist.barrier()
del model
dist.destroy_process_group()
