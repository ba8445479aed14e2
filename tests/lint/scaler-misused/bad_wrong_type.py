import torch


def train(model, loader, loss_of):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_of(model(x), y)
        loss.backward()  # expect: scaler-misused
        optimizer.step()
