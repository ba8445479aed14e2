"""Epochs of three steps, and a loader that starts its workers anew for each.

Verdict: loader-restarts; ranks: 0-3
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(48, 64), torch.randint(10, (48,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context="fork")
for epoch in range(4):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:  # the fault
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.2)  # for what a device computes: the first batch of each epoch is a small part of it
dist.barrier()
del model, optimizer
dist.destroy_process_group()
