import torch
from torch import nn


def train(batches, micro_batches):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        for micro in batch.chunk(micro_batches):
            optimizer.zero_grad()  # expect: gradients-cleared-early
            (model(micro).mean() / micro_batches).backward()
        optimizer.step()
