"""A backbone whose gradients are averaged by hand, and a head that each rank trains for itself.

Guard: none
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    torch.manual_seed(step)
    loss = (model(torch.randn(4, 8)) + torch.rand(4, 8) * 1e-3 * (rank + 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model[0].parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
