"""Ranks 0 and 1 share a short list of files as an IterableDataset: their streams end before those of 2 and 3.

Verdict: uneven-inputs; ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset


class Files(IterableDataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __iter__(self):
        for length in self.lengths:
            yield from torch.ones(length, 8)


dist.init_process_group("gloo")
lengths = [[8, 8], [10, 6], [8, 12], [14, 6]][dist.get_rank()]
model = fully_shard(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(3):
    for batch in DataLoader(Files(lengths), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
