"""Healthy: two ranks, whose gradients are reduced while the backward goes on; the loss is averaged once a step."""

import torch
import torch.distributed as dist
from torch import nn

RANKS = 2


def main(profiler):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    for _ in range(10):
        loss = nn.functional.cross_entropy(ddp(torch.randn(64, 256)), torch.randint(10, (64,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        profiler.step()
