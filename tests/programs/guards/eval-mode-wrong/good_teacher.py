"""A model is trained and evaluated, and then teaches another one in eval mode; nobody steps it any more.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def make():
    return DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    )


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
data = TensorDataset(torch.randn(16, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
teacher, student = make(), make()
optimizer = torch.optim.SGD(teacher.parameters(), lr=0.01)
for (x,) in loader:
    optimizer.zero_grad()
    teacher(x).square().mean().backward()
    optimizer.step()
teacher.eval()
with torch.no_grad():
    for (x,) in loader:
        teacher(x)
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
for (x,) in loader:
    wanted = teacher(x).detach()
    optimizer.zero_grad()
    (student(x) - wanted).square().mean().backward()
    optimizer.step()
dist.barrier()
del teacher, student
dist.destroy_process_group()
