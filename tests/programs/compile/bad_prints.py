"""A print in the forward.

Compile: graph-break; says: the graph breaks at bad_prints.py:16 in forward: Failed to trace builtin operator
"""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.linear(x)
        print("hidden", end="")
        return hidden.relu()


model = torch.compile(Net(), backend="eager")
for _ in range(3):
    model(torch.randn(4, 8)).sum().backward()
