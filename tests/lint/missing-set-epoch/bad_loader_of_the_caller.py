"""The loader comes from the caller, who can hardly tell its sampler the epoch."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, train_dataloader, optimizer, config):
    model = DDP(net, device_ids=[dist.get_rank()])
    for _epoch in range(config.num_epochs):
        for step, batch in enumerate(train_dataloader):  # expect: missing-set-epoch
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(step)
