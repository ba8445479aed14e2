import torch
from torch.utils.data import DataLoader, DistributedSampler


def main(train_set, val_set, model, optimizer):
    train_sampler = DistributedSampler(train_set)
    val_sampler = DistributedSampler(val_set)
    train_loader = DataLoader(train_set, sampler=train_sampler)
    val_loader = DataLoader(val_set, sampler=val_sampler)
    for epoch in range(10):
        val_sampler.set_epoch(epoch)
        for batch in train_loader:  # expect: missing-set-epoch
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()


if __name__ == "__main__":
    layer = torch.nn.Linear(4, 1)
    data = torch.randn(8, 4)
    main(data, data, lambda batch: layer(batch).mean(), torch.optim.SGD(layer.parameters(), lr=0.1))
