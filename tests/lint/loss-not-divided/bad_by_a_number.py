import torch


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        loss = model(x)
        loss.backward()  # expect: loss-not-divided
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
