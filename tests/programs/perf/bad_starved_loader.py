"""Each sample is waited for in the training process itself, as from a slow disk, on all ranks.

Verdict: data-starved; ranks: 0-3
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Files(Dataset):
    def __len__(self):
        return 4 * 2 * 10

    def __getitem__(self, index):
        time.sleep(0.03)  # the fault
        return torch.randn(64), index % 10


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in DataLoader(Files(), batch_size=2, sampler=DistributedSampler(Files())):
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
