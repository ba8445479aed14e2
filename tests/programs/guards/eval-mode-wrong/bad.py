"""The evaluation after each epoch leaves the model in eval mode, and the next epoch trains on in it.

Guard: eval-mode-wrong; line: return model(x).square().mean(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def loss_of(model, x):
    return model(x).square().mean()


def one_epoch(model, loader, optimizer):
    for (x,) in loader:
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return sum(model(x).mean().item() for (x,) in loader)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(16, 4) + dist.get_rank())
loader, held_out = DataLoader(data, batch_size=2), DataLoader(data, batch_size=4)
for _ in range(2):
    one_epoch(model, loader, optimizer)
    evaluate(model, held_out)
dist.barrier()
del model
dist.destroy_process_group()
