"""The ranks share a layer and exchange its activations; each has a norm and a bias of its own, which begin alike.

Guard: none
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
shared, norm, head = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1)
model = torch.nn.ModuleList([shared, norm, head])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    torch.manual_seed(step)
    features = torch.distributed.nn.functional.all_reduce(shared(torch.randn(4, 8)))
    loss = (head(norm(features)) - torch.randn(4, 1) * (rank + 1)).square().mean()  # a task of its own
    optimizer.zero_grad()
    loss.backward()
    for parameter in shared.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
