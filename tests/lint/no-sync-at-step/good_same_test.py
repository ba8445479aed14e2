from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, grad_accum, ddp):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, batch in enumerate(loader):
        stepping = (i + 1) % grad_accum == 0
        with nullcontext() if not ddp or stepping else model.no_sync():
            (model(batch) / grad_accum).backward()
        if stepping:
            optimizer.step()
            optimizer.zero_grad()


def train_from_one(model, loader, grad_accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, batch in enumerate(loader, start=1):
        if i % grad_accum != 0:
            with model.no_sync():
                (model(batch) / grad_accum).backward()
        else:
            (model(batch) / grad_accum).backward()
            optimizer.step()
            optimizer.zero_grad()
