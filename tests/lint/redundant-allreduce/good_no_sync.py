import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, loader, accum_steps):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        last = (i + 1) % accum_steps == 0
        with contextlib.nullcontext() if last else model.no_sync():
            (model(x) / accum_steps).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
