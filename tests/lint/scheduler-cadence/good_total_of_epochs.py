import torch
from transformers import get_linear_schedule_with_warmup


def train(model, loader, epochs):
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=epochs)
    for _ in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        scheduler.step()


def each_batch(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, len(loader) * epochs)
    for _ in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            scheduler.step()
