"""The evaluation forgets no_grad, and keeps all of its outputs until its end.

Guard: eval-with-grad; line: outputs.append(model(x)); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def evaluate(model, loader):
    model.eval()
    outputs = []
    for (x,) in loader:
        outputs.append(model(x))
    model.train()
    return torch.cat(outputs).sum().item()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
for (x,) in loader:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
evaluate(model, loader)
dist.barrier()
del model
dist.destroy_process_group()
