import torch


def train(model, loader, epochs, warm):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for epoch in range(epochs):
        if epoch < warm:
            one_epoch(model, loader, optimizer)
        else:
            scheduler.step()  # expect: scheduler-before-optimizer
            one_epoch(model, loader, optimizer)


def one_epoch(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
