"""The schedules of transformers are torch's LambdaLR."""

import torch
from transformers import get_linear_schedule_with_warmup


def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = get_linear_schedule_with_warmup(optimizer, 100, 1000)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).backward()
        scheduler.step()  # expect: scheduler-before-optimizer
        optimizer.step()
