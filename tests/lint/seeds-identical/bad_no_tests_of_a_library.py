import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(model, loader, optimizer):
    torch.manual_seed(16)  # expect: seeds-identical
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x + torch.randn_like(x)), y).backward()
        optimizer.step()


def test(model, loader):
    return dist.get_rank(), model(next(iter(loader))[0])
