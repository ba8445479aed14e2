import torch


def measure(model, loader):
    return sum(model(x).mean().item() for x in loader)


def main(model, loader, held_out):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        model.eval()  # expect: eval-mode-wrong
        print(epoch, measure(model, held_out))
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()


def both(model, loader, held_out):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(3):
        model.eval()  # expect: eval-mode-wrong
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        with torch.no_grad():
            for x in held_out:
                model(x)
