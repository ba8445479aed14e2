import torch


def main(model, loader, epochs, milestones):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones) if milestones else None
    for _ in range(epochs):
        if scheduler is not None:
            scheduler.step()  # expect: scheduler-before-optimizer
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
