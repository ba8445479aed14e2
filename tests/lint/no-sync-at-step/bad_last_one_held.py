import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, distributed):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        parts = batch.chunk(4)
        optimizer.zero_grad()
        for number, part in enumerate(parts):
            sync = distributed and number == len(parts) - 1
            with model.no_sync() if sync else contextlib.nullcontext():  # expect: no-sync-at-step
                (model(part).mean() / 4).backward()
        optimizer.step()
