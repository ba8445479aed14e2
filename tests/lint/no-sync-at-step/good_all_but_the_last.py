import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        parts = batch.chunk(4)
        optimizer.zero_grad()
        for number, part in enumerate(parts):
            hold = number < len(parts) - 1
            with model.no_sync() if hold else contextlib.nullcontext():
                (model(part).mean() / 4).backward()
        optimizer.step()
