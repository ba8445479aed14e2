import torch


def over_steps(model, batches, accum_steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shown = 0.0
    for _ in range(100):
        optimizer.zero_grad()
        for _ in range(accum_steps):
            loss = model(next(batches)) / accum_steps
            loss.backward()
            shown += loss  # expect: graph-retained
        optimizer.step()
    return shown


def over_an_epoch(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        shown = 0.0
        for x in loader:
            optimizer.zero_grad()
            loss = model(x)
            loss.backward()
            optimizer.step()
            shown += loss  # expect: graph-retained
        print(epoch, shown)
