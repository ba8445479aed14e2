import torch
from torch import nn


def forward(model, x, accumulation_steps):
    return model(x).mean() / accumulation_steps


def backward(loss, scaler, optimizer, iteration, accumulation_steps):
    scaler.scale(loss).backward()
    if iteration % accumulation_steps == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def train(loader, accumulation_steps):
    model, scaler = nn.Linear(4, 1), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        backward(forward(model, x, accumulation_steps), scaler, optimizer, i, accumulation_steps)
