import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler


def train(data, model, optimizer, epochs):
    sampler = StatefulDistributedSampler(data, num_replicas=2, rank=0, shuffle=True)
    loader = DataLoader(data, sampler=sampler)
    for epoch in range(epochs):
        for batch in loader:  # expect: missing-set-epoch
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        print(epoch)


if __name__ == "__main__":
    layer = torch.nn.Linear(4, 1)
    train(torch.randn(8, 4), layer, torch.optim.SGD(layer.parameters(), lr=0.1), 3)
