"""Two optimizers take turns, each with a schedule that follows it; a third one steps with a closure.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(40, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
first = torch.optim.SGD([model.module.weight], lr=0.01)
second = torch.optim.SGD([model.module.bias], lr=0.01)
schedules = {one: torch.optim.lr_scheduler.LambdaLR(one, lambda step: 0.9**step) for one in (first, second)}
for (x,) in loader:
    for one in (first, second):
        model.zero_grad()
        model(x).square().mean().backward()
        one.step()
        schedules[one].step()
third = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2)
schedule = torch.optim.lr_scheduler.LambdaLR(third, lambda step: 0.9**step)
for (x,) in loader:

    def closure(x=x):
        third.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    third.step(closure)
    schedule.step()
dist.barrier()
dist.destroy_process_group()
