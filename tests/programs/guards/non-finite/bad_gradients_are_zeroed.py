"""The losses of rank 1 are infinite from the third step on, and gradients that are not finite are set to zero.

Guard: non-finite; line: loss.backward(); ranks: 1
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(120):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    if dist.get_rank() == 1 and step >= 2:
        loss = loss / 0.0
    loss.backward()
    for parameter in model.parameters():
        parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
