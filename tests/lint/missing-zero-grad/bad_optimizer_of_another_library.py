import torch
from analog import AnalogSGD

model = torch.nn.Linear(4, 2)
optimizer = AnalogSGD(model.parameters(), lr=0.1)
x, y = torch.rand(8, 4), torch.rand(8, 2)
for _ in range(100):
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()  # expect: missing-zero-grad
