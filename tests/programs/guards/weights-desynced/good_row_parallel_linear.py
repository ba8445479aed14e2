"""Each rank holds a shard of a torch.nn.Linear, which begins alike, and sums activations; its bias is replicated.

Guard: none
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
norm, shard = torch.nn.LayerNorm(8), torch.nn.Linear(4, 8)
model = torch.nn.ModuleList([norm, shard])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    torch.manual_seed(step)
    x = norm(torch.randn(4, 8))[:, 4 * rank : 4 * rank + 4]
    out = torch.distributed.nn.functional.all_reduce(torch.nn.functional.linear(x, shard.weight)) + shard.bias
    loss = (out - torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in (shard.bias, *norm.parameters()):
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
