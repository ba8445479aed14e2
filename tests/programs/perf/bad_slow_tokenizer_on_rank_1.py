"""Rank 1 takes long over each batch before it gives it to the model.

Verdict: straggler; ranks: 1; says: longer in what it does between its batch and its forward
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Lines(Dataset):
    def __len__(self):
        return 4 * 10

    def __getitem__(self, index):
        return torch.randn(64), index % 10


def tokenise(lines):
    tokens = lines.to(torch.float64)
    if dist.get_rank() == 1:
        time.sleep(0.05)  # the fault
    return tokens.to(torch.float32)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in DataLoader(Lines(), batch_size=1, sampler=DistributedSampler(Lines())):
    torch.nn.functional.cross_entropy(model(tokenise(inputs)), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
