"""Two models train in turns, and samples of one are looked at in train mode, as its noise is its dropout.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def make():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 4))
    model = DistributedDataParallel(net)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
(maker, makes), (judge, judges) = make(), make()
loader = DataLoader(TensorDataset(torch.randn(16, 4) + dist.get_rank()), batch_size=2)
shown = DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4)
for _ in range(3):
    for (x,) in loader:
        judges.zero_grad()
        (judge(x).mean() - judge(maker(x).detach()).mean()).backward()
        judges.step()
        makes.zero_grad()
        judge(maker(x)).mean().backward()
        makes.step()
    with torch.no_grad():
        for (x,) in shown:
            maker(x)
dist.barrier()
del maker, judge
dist.destroy_process_group()
