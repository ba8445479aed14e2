import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader):
    with torch.no_grad():
        return sum(model(x).mean() for x in loader)


def main(net, loader, rank):
    model = DDP(net, device_ids=[rank])
    for x in loader:
        model(x).sum().backward()
    print(evaluate(model, loader))
    if rank == 0:
        print(evaluate(model.module, loader))
        print(evaluate(net, loader))
        print(len(evaluate(model.module, loader)))


def taken_out(net, loader, rank, several):
    model = DDP(net, device_ids=[rank])
    plain = model.module if several else model
    if rank == 0:
        print(plain(next(loader)))


def with_nothing_to_send(net, x, rank):
    model = DDP(net, broadcast_buffers=False)
    if rank == 0:
        print(model(x))
