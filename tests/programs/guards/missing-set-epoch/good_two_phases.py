"""The epoch is told, and each epoch goes through the data twice, for two models; the guard is asked to mend.

Guard: none
Modes: missing-set-epoch=fix
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
critic, model = (DistributedDataParallel(torch.nn.Linear(4, 1)) for _ in range(2))
phases = [(net, torch.optim.SGD(net.parameters(), lr=0.01)) for net in (critic, model)]
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=2, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for net, optimizer in phases:
        for (x,) in loader:
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
        assert sampler.epoch == epoch
dist.barrier()
del critic, model, net, phases
dist.destroy_process_group()
