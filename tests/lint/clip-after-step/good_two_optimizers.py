import torch
from torch import nn


def train(loader):
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    first = torch.optim.Adam(generator.parameters())
    second = torch.optim.Adam(critic.parameters())
    for x in loader:
        first.zero_grad()
        second.zero_grad()
        critic(generator(x)).mean().backward()
        torch.nn.utils.clip_grad_norm_(generator.parameters(), 1.0)
        first.step()
        torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        second.step()
