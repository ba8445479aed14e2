import torch


def fit(model, train_loader, valid_loader, optimizer, loss_fn, epochs):
    for epoch in range(epochs):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            total = 0.0
            for x, y in valid_loader:
                model.train()  # expect: eval-mode-wrong
                total += loss_fn(model(x), y).item()
        print(epoch, total)
