import torch


def main(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 10)
    for epoch in range(epochs):
        for i, x in enumerate(loader):
            scheduler.step(epoch + i / len(loader))
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()


class WarmUp:
    def step(self):
        pass


def own(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = WarmUp()
    for x in loader:
        schedule.step()
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
