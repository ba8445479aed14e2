"""DDP, gradients that are accumulated, and a scaler: what is read is the loss, not what the scaler makes of it.

Overfit: learns; says: the loss of one batch falls: from 1.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10)
for epoch in range(1000):
    loader.sampler.set_epoch(epoch)
    for number, (a, b) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(a), b)
        scaler.scale(loss).backward()
        if number % 2:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
del model, optimizer
dist.destroy_process_group()
