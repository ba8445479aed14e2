import torch


def main(model, loader, loss_of):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        model.eval()
        seen = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
            seen += len(x)
        print(epoch, seen)
