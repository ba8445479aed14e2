"""With num_workers=0 the data set runs in the training process: rank 1 waits for a download inside next(loader).

Verdict: stuck-in-dataloader; ranks: 1; says: loader_in_main.py:21
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Remote(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        while index == 41:
            time.sleep(1)
        return torch.ones(8)


dist.init_process_group("gloo")
data = Remote()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False)):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
dist.barrier()
