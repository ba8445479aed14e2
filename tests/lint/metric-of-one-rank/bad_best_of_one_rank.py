import torch
from engine import train_one_epoch, validate
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main(model, train_data, val_data, rank):
    model = DistributedDataParallel(model, device_ids=[rank])
    train_loader = DataLoader(train_data, sampler=DistributedSampler(train_data))
    val_loader = DataLoader(val_data, sampler=DistributedSampler(val_data, shuffle=False))
    best = float("inf")
    for epoch in range(10):
        train_loader.sampler.set_epoch(epoch)
        train_one_epoch(model, train_loader)
        model.eval()
        score = validate(model, val_loader)
        if score < best:  # expect: metric-of-one-rank
            best = score
            if rank == 0:
                torch.save(model.module.state_dict(), "best.pt")
