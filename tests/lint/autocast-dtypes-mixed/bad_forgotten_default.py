import torch


def loss_of(model, x, y):
    with torch.autocast("cuda"):  # expect: autocast-dtypes-mixed
        return torch.nn.functional.cross_entropy(model(x), y)


def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
