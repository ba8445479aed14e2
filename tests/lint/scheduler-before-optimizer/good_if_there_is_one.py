import torch


def main(model, loader, epochs, milestones):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones) if milestones else None
    for _ in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        if scheduler is not None:
            scheduler.step()


def not_in_the_first_epoch(model, loader, epochs, milestones):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones)
    for epoch in range(epochs):
        if epoch > 0:
            scheduler.step()
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
