"""A recurrent state goes from batch to batch with its graph, and retain_graph=True silences the error that says so.

No container holds it, and the loss of each step is freed: what made the state is alive, and the memory that grows is
explained by it.

Verdict: graph-retained; says: kept alive
"""

import time

import torch

decay = torch.nn.Parameter(torch.full((1024,), 0.9))
head = torch.nn.Linear(1024, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
state = torch.zeros(128, 1024)
for _ in range(96):
    optimizer.zero_grad()
    state = torch.tanh(state * decay + torch.randn(128, 1))
    (state.sum(dim=1) + head(state.detach()).squeeze(1)).square().mean().backward(retain_graph=True)
    optimizer.step()
    time.sleep(0.05)  # as long as a real step: there are lines enough to judge by
