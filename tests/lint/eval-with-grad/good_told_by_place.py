import torch


def run_epoch(model, optimizer, loader, is_train):
    if is_train:
        model.train()
    else:
        model.eval()
    for x in loader:
        if is_train:
            optimizer.zero_grad()
            loss = model(x).mean()
        else:
            with torch.no_grad():
                loss = model(x).mean()
        if is_train:
            loss.backward()
            optimizer.step()


def main(model, optimizer, loader, val_loader, epochs):
    for _ in range(epochs):
        run_epoch(model, optimizer, loader, True)
        run_epoch(model, optimizer, val_loader, False)
