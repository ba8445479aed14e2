import torch
from torch.nn.parallel import DistributedDataParallel

from ours import Both, backbone


def train(args, gpu, loader, criterion):
    model = DistributedDataParallel(backbone().cuda(gpu), device_ids=[gpu])
    head = DistributedDataParallel(torch.nn.Linear(2048, 1000).cuda(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD([{"params": head.parameters()}, {"params": model.parameters()}], 0.1)
    for x, y in loader:
        optimizer.zero_grad()
        criterion(head(model(x)), y).backward()
        optimizer.step()


def as_one(args, gpu, loader, criterion):
    encoder, head = backbone().cuda(gpu), torch.nn.Linear(2048, 1000).cuda(gpu)
    both = DistributedDataParallel(Both(encoder, head), device_ids=[gpu])
    optimizer = torch.optim.SGD(both.parameters(), 0.1)
    for x, y in loader:
        optimizer.zero_grad()
        criterion(both(x), y).backward()
        optimizer.step()
