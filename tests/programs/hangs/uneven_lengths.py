"""The files are dealt out as they come, so rank 3 has fewer batches and reaches the epoch's barrier first.

Verdict: uneven-inputs; ranks: 3; says: 3
Guard: loader-lengths-differ; says: Batches: 11 on rank 3, 12 on ranks 0-2
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
data = TensorDataset(torch.randn(47, 8))
mine = Subset(data, range(rank, len(data), size))
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(3):
    for (batch,) in DataLoader(mine, batch_size=1):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    dist.barrier()
