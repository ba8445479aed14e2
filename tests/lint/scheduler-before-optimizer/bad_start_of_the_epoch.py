import torch


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for epoch in range(3):
        scheduler.step()  # expect: scheduler-before-optimizer
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
