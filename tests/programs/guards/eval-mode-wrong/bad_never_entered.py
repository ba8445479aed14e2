"""The evaluation after each epoch leaves the model as it is: dropout drops while it is measured.

Guard: eval-mode-wrong; line: outputs = model(x); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def one_epoch(model, loader, optimizer):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@torch.inference_mode()
def score(model, x):
    outputs = model(x)
    return outputs.mean().item()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(16, 4) + dist.get_rank()), batch_size=2)
held_out, tested = (DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4) for _ in range(2))
for _ in range(2):
    one_epoch(model, loader, optimizer)
    print(sum(score(model, x) for (x,) in held_out), sum(score(model, x) for (x,) in tested))
dist.barrier()
del model
dist.destroy_process_group()
