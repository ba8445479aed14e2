import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main(model, train_set, val_set):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    val_loader = DataLoader(val_set[rank::world_size], batch_size=8)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        correct = 0.0
        with torch.no_grad():
            for x in val_loader:
                correct += model.module(x).sum().item()
        total = torch.tensor(correct)
        dist.all_reduce(total)
