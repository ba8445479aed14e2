"""The loss is read every fifth step, and summed where it is until then.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = torch.zeros(())
for step in range(12):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += loss.detach()
    if step % 5 == 4:
        print("loss", (total / 5).item(), flush=True)
        total.zero_()
dist.barrier()
del model, optimizer, loss
dist.destroy_process_group()
