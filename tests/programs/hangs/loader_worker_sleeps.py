"""A loader worker of rank 1 waits for a shard that is still being copied, which never ends.

Verdict: stuck-in-dataloader; ranks: 1; says: loader_worker_sleeps.py:24
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Shards(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 400

    def __getitem__(self, index):
        while self.rank == 1 and index > 60:
            time.sleep(1)
        return torch.ones(8)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    data = Shards(dist.get_rank())
    sampler = DistributedSampler(data, shuffle=False)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(data, batch_size=4, sampler=sampler, num_workers=2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    dist.barrier()
