"""A context manager of another file is around the backward pass: it may hold the gradients back."""

import torch
from ours.contexts import step_context
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, accumulation_steps):
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, batch in enumerate(loader):
        last = (i + 1) % accumulation_steps == 0
        with step_context(model, last):
            loss = model(batch) / accumulation_steps
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
