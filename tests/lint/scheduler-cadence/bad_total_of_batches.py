import torch
from transformers import get_linear_schedule_with_warmup


def train(model, loader, epochs):
    optimizer = torch.optim.AdamW(model.parameters())
    total = len(loader) * epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=total)
    for _ in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        scheduler.step()  # expect: scheduler-cadence


def polynomial(model, loader, epochs, max_iters):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, max_iters)
    for _ in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        scheduler.step()  # expect: scheduler-cadence
