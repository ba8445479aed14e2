import torch


def forward(model, x, accumulation_steps):
    return model(x) / accumulation_steps


def main(model, loader, accumulation_steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        forward(model, x, accumulation_steps).backward()
        if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
