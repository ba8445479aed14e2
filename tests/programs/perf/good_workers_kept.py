"""Epochs of twelve steps, and a loader that keeps its workers.

Verdict: none
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
data = TensorDataset(torch.randn(192, 64), torch.randint(10, (192,)))
sampler = DistributedSampler(data)
forked = {"num_workers": 1, "multiprocessing_context": "fork"}
loader = DataLoader(data, batch_size=4, sampler=sampler, persistent_workers=True, **forked)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.2)  # for what a device computes while the host only launches
dist.barrier()
del model, optimizer
dist.destroy_process_group()
