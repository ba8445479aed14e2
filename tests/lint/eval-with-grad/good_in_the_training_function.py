import torch


def fit(model, optimizer, train_loader, val_loader, frozen, epochs):
    frozen.eval()
    for _ in range(epochs):
        model.train()
        for x in train_loader:
            optimizer.zero_grad()
            (model(x) - frozen(x)).mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            total = sum(model(x).mean().item() for x in val_loader)
            for x in val_loader:
                total += model(x).mean().item()
        print(total)


def tuned_on_the_validation_data(model, optimizer, val_loader):
    model.eval()
    for x in val_loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
