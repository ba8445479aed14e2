from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, grad_accum):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rounds = 0
    for batch in loader:
        with model.no_sync() if (rounds + 1) % grad_accum != 0 else nullcontext():
            (model(batch) / grad_accum).backward()
        rounds += 1
        if rounds % grad_accum == 0:
            optimizer.step()
            optimizer.zero_grad()
