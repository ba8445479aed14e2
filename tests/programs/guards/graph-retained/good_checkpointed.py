"""Activations are computed again in backward, and the hidden state is cut off after each batch.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo")
cell = torch.nn.RNNCell(4, 4)
model = DistributedDataParallel(cell)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hidden = torch.zeros(2, 4)
for _ in range(60):
    optimizer.zero_grad()
    hidden = checkpoint(model, torch.randn(2, 4), hidden.detach(), use_reentrant=False)
    hidden.square().mean().backward()
    optimizer.step()
dist.barrier()
del model, hidden
dist.destroy_process_group()
