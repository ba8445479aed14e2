"""A recurrent state goes from batch to batch with its graph, and retain_graph=True silences the error that says so.

No container holds it, and the graph of a step's loss is freed: only the memory tells.

Verdict: host-memory-growth; says: a step
"""

import torch

cell = torch.nn.GRUCell(16, 64)
head = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
state = torch.zeros(512, 64)
for _ in range(48):
    optimizer.zero_grad()
    state = cell(torch.randn(512, 16), state)
    (state.sum(dim=1) + head(state.detach()).squeeze(1)).square().mean().backward(retain_graph=True)
    optimizer.step()
