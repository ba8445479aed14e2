"""The stream of ranks 0 and 3 has run dry: their loader workers wait for more, in the data set's own code.

The workers are children of a fork server, as from Python 3.14 on all are by default.

Verdict: stuck-in-dataloader; ranks: 0,3; says: iterable_worker_waits.py:24
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, rank):
        self.dry_at = 12 if rank in (0, 3) else 10**6

    def __iter__(self):
        number = 0
        while True:
            while number == self.dry_at:
                time.sleep(0.5)
            yield torch.ones(8)
            number += 1


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    stream = Stream(dist.get_rank())
    for batch in DataLoader(stream, batch_size=4, num_workers=1, multiprocessing_context="forkserver"):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
