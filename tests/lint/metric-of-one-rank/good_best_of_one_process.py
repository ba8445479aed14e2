import torch
from engine import train_one_epoch, validate
from torch.utils.data import DataLoader, DistributedSampler


def main(model, train_data, val_data, local_rank):
    train_loader = DataLoader(train_data, sampler=DistributedSampler(train_data))
    val_loader = DataLoader(val_data, sampler=DistributedSampler(val_data) if local_rank != -1 else None)
    best = float("inf")
    for epoch in range(10):
        train_loader.sampler.set_epoch(epoch)
        train_one_epoch(model, train_loader)
        model.eval()
        if local_rank == -1:
            score = validate(model, val_loader)
            if score < best:
                best = score
                torch.save(model.state_dict(), "best.pt")
