def fit(model, optimizer, train_loader, val_loaders, epochs):
    for _ in range(epochs):
        model.train()
        for x in train_loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        model.eval()
        total = 0
        for val_loader in val_loaders:  # expect: eval-with-grad
            for x in val_loader:
                total += model(x).mean().item()
        print(total)
