"""A stream has no sampler; a validation needs no order; a loader of one process has none either."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    pass


def train(net, train_dataloader, val_loader, optimizer, config):
    model = DDP(net, device_ids=[dist.get_rank()])
    for _epoch in range(config.num_epochs):
        for batch in train_dataloader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        for batch in val_loader:
            print(model(batch))
