"""At step 20 the stream has nothing for anybody for half a minute: all loader workers sleep in small steps.

Fools "no progress and no CPU time on any rank". Half a minute later the data comes.
Quiet for: 25 s
Verdict: none; exit: 0
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(200):
            if number == 80:
                for _ in range(250):
                    time.sleep(0.1)
            yield torch.ones(8)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for batch in DataLoader(Stream(), batch_size=4, num_workers=1, prefetch_factor=2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.05)
    dist.barrier()
    del model, optimizer
    dist.destroy_process_group()
