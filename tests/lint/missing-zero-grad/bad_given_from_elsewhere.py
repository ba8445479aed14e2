"""The optimizer is a parameter: what it is called, and what is called on it, says what it is."""


def train_one_epoch(model, criterion, loader, optimizer, scaler, device):
    model.train()
    for images, labels in loader:
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()  # expect: missing-zero-grad
