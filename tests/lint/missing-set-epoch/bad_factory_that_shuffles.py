from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def make_loader(dataset, shuffle=True):
    return DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset, shuffle=shuffle))


def train(dataset, others, model, optimizer):
    ordered = make_loader(others, shuffle=False)
    loader = make_loader(dataset)
    for epoch in range(3):
        for batch in ordered:
            print(model(batch), epoch)
        for batch in loader:  # expect: missing-set-epoch
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
