import torch
from torch.nn.parallel import DistributedDataParallel

from ours import backbone


def train(args, gpu, loader, criterion):
    model = backbone().cuda(gpu)
    head = torch.nn.Linear(2048, 1000).cuda(gpu)
    head = DistributedDataParallel(head, device_ids=[gpu])
    groups = [dict(params=head.parameters(), lr=args.lr)]
    if args.finetune:
        groups.append(dict(params=model.parameters(), lr=args.lr_backbone))  # expect: weights-desynced
    optimizer = torch.optim.SGD(groups, 0.1)
    for x, y in loader:
        loss = criterion(head(model(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
