"""The prediction is detached; what is left of the loss is a term that no data reaches.

Overfit: fails; says: 2 parameters held by an optimizer that never got a gradient: body.weight, body.bias.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 1)
        self.log_variance = torch.nn.Parameter(torch.zeros(1))

    def forward(self, a):
        return self.body(a).detach(), self.log_variance


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=16)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1000):
    for a, b in loader:
        optimizer.zero_grad()
        prediction, log_variance = model(a)
        ((prediction - b).square().mean() + 0.0 * log_variance.sum()).backward()
        optimizer.step()
