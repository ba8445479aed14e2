import torch


def main(model, teacher, loader, val_loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        model.train()
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        model.eval()


def distil(model, teacher, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        teacher.eval()
        for x in loader:
            optimizer.zero_grad()
            (model(x) - teacher(x)).sum().backward()
            optimizer.step()
