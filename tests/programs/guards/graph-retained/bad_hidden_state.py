"""The hidden state goes from batch to batch with all that made it: backward walks through every batch so far.

Guard: graph-retained; line: hidden.square().mean().backward(retain_graph=True); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
hidden = torch.zeros(2, 4)
for _ in range(110):
    optimizer.zero_grad()
    hidden = model(torch.randn(2, 4)) + 0.5 * hidden
    hidden.square().mean().backward(retain_graph=True)
    optimizer.step()
dist.barrier()
del model, hidden
dist.destroy_process_group()
