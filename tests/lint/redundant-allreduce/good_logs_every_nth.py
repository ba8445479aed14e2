import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, loader, log_every):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        if i % log_every == 0:
            print(loss.item())
