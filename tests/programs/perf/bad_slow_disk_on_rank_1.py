"""Rank 1 reads from a slower disk, and all others wait for it in their backward.

Verdict: data-starved; ranks: 1
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Files(Dataset):
    def __len__(self):
        return 4 * 10

    def __getitem__(self, index):
        if dist.get_rank() == 1:
            time.sleep(0.05)  # the fault
        return torch.randn(64), index % 10


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in DataLoader(Files(), batch_size=1, sampler=DistributedSampler(Files())):
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
