import torch


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        for x in loader:
            model(x)


def main(model, train_loader, val_loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x in train_loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        model.eval()  # expect: eval-mode-wrong
        with torch.no_grad():
            for x in val_loader:
                model(x)


def train(steps):
    print(steps)


train(10)
