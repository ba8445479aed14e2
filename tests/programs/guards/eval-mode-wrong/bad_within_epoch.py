"""An evaluation in the middle of an epoch, after which the same pass over the data goes on.

Guard: eval-mode-wrong; line: loss = model(x).square().mean(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum(model(x).mean().item() for (x,) in loader)


dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
model = DistributedDataParallel(net)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(80, 4) + dist.get_rank())
loader, held_out = DataLoader(data, batch_size=2), DataLoader(data, batch_size=4)
for step, (x,) in enumerate(loader):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 25:
        evaluate(model, held_out)
dist.barrier()
del model
dist.destroy_process_group()
