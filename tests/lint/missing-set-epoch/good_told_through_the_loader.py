from torch.utils.data import DataLoader, DistributedSampler


def train_epoch(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()


def main(data, model, optimizer):
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer)
