"""Every rank reads the same global batch and gives the model a part of its own: of the rows, or of each sequence.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
data = TensorDataset(torch.randint(0, 50, (32, 16), generator=torch.Generator().manual_seed(0)))
for dim in (0, 1):
    model = DistributedDataParallel(torch.nn.Embedding(50, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (tokens,) in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        model(tokens.chunk(ranks, dim=dim)[rank]).square().mean().backward()
        optimizer.step()
    del model
dist.barrier()
dist.destroy_process_group()
