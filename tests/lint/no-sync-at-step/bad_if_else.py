import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, grad_accum):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, batch in enumerate(loader):
        if (i + 1) % grad_accum == 0:
            with model.no_sync():  # expect: no-sync-at-step
                (model(batch) / grad_accum).backward()
        else:
            (model(batch) / grad_accum).backward()
        if (i + 1) % grad_accum == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
