"""Rank 0 has fewer batches than its peers and ends with exit code 0; they lose the connection in the next step.

Verdict: uneven-inputs|rank-exited-early; ranks: 0; exit: 1
On two ranks.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
mine = TensorDataset(torch.randn(8 if dist.get_rank() == 0 else 12, 8))
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for (batch,) in DataLoader(mine, batch_size=2):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
