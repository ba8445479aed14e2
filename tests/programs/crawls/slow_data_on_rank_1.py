"""Rank 1 reads its data from a slower disk: every batch comes late, and all others wait in their backward.

Verdict: straggler; ranks: 1; says: data; late at: slow_data_on_rank_1.py:19
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, index):
        time.sleep(0.1 if dist.get_rank() == 1 else 0.01)
        return torch.full((8,), float(index))


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step, batch in enumerate(DataLoader(Records())):
    if step == 30:
        print("warm", flush=True)
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del model, optimizer
dist.destroy_process_group()
